// SPDX-License-Identifier: Apache-2.0
// Measures how long each rank of a mesh of processes computes and how fast it answers. Every rank
// counts; the first rank gets the readings after some of the passes and judges them
// (inner/mesh/rank_watch.h).
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

/// One rank's part. One thread drives it.
class RankReadings {
 public:
  static constexpr int kTag = 1;  // of messages over `ranks`

  /// processes: borrowed; as many as the mesh has ranks.
  RankReadings(const MeshShape& mesh, RankProcesses& processes);

  /// The communicator for passes; waiting in it does not count as computing.
  [[nodiscard]] Communicator& ranks() { return *counted_; }
  /// Runs a pass's computation and counts its time.
  void count(const std::function<void()>& computing);

  /// Called on the first rank: adds the duration of a pass that has ended.
  void add_pass(double seconds) { passes_s_ += seconds; }
  /// True if the passes since the last readings are long enough for new ones. REQUIRES: the first
  /// rank.
  [[nodiscard]] bool due() const;
  /// Collective, after a pass, when all ranks have sent their results and wait. Calls
  /// processes.on_finding. THROWS: CommunicatorError.
  void exchange();

 private:
  [[nodiscard]] double seconds_since(TimePoint begin) const;
  void answer(double computed_s);

  RankProcesses& processes_;
  WaitingTime waited_;
  const std::unique_ptr<Communicator> counted_;
  double computed_s_ = 0;  // since the last readings, as the next two fields
  std::int64_t passes_ = 0;
  double passes_s_ = 0;
  double readings_s_ = 0;  // duration of the last readings
  RankWatch watch_;        // used only on the first rank
};

}  // namespace isthmus
