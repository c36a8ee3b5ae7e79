// SPDX-License-Identifier: Apache-2.0
// How long each rank of a mesh of processes computes and answers: counted on every rank, told to
// the first after some of the passes, and judged there (inner/mesh/rank_watch.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "inner/mesh/mesh.h"
#include "inner/mesh/rank_processes.h"
#include "inner/mesh/rank_watch.h"
#include "isthmus/runtime.h"
#include "transport/collectives/waiting_communicator.h"

namespace isthmus {

/// One rank's end. One thread drives it.
class RankReadings {
 public:
  static constexpr int kTag = 1;  // of messages over `ranks`

  /// processes: borrowed; as many as the mesh has ranks.
  RankReadings(const MeshShape& mesh, RankProcesses& processes);

  /// The communicator of the passes; what a rank waits in it is not computing.
  [[nodiscard]] Communicator& ranks() { return *counted_; }
  /// Runs a pass's computing and counts its time.
  void count(const std::function<void()>& computing);

  /// Of the first rank: a pass that has taken so long has ended.
  void add_pass(double seconds) { passes_s_ += seconds; }
  /// Whether the passes since the last readings are long enough for new ones. REQUIRES: the first.
  [[nodiscard]] bool due() const;
  /// Collective, after a pass, when all have given what they computed and wait. Tells
  /// processes.on_finding. THROWS: CommunicatorError.
  void exchange();

 private:
  [[nodiscard]] double seconds_since(TimePoint begin) const;
  void answer(double computed_s);

  RankProcesses& processes_;
  WaitingTime waited_;
  const std::unique_ptr<Communicator> counted_;
  double computed_s_ = 0;  // since the last readings, as the next two
  std::int64_t passes_ = 0;
  double passes_s_ = 0;
  double readings_s_ = 0;  // that the last readings took
  RankWatch watch_;        // the first rank's alone
};

}  // namespace isthmus
