// SPDX-License-Identifier: Apache-2.0
// Threads in place of the processes that are the ranks of a mesh.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "core/base/system_runtime.h"
#include "inner/mesh/rank_processes.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus {

class RankThreads {
 public:
  /// clocks: of each rank, borrowed; none: real ones.
  RankThreads(const MeshShape& mesh, std::chrono::milliseconds patience,
              const std::vector<const Clock*>& clocks = {})
      : passes_(make_thread_communicators(mesh.ranks(), patience, rank_places(mesh))),
        orders_(make_thread_communicators(mesh.ranks(), patience, rank_places(mesh))),
        roll_calls_(make_thread_communicators(mesh.ranks(), patience, rank_places(mesh))) {
    for (std::size_t r = 0; r < passes_.size(); ++r) {
      const Clock& clock = clocks.empty() ? runtime_.clock() : *clocks[r];
      ranks_.push_back(std::make_unique<RankProcesses>(
          RankProcesses{*passes_[r], *orders_[r], *roll_calls_[r], clock}));
    }
  }
  RankProcesses& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  SystemRuntime runtime_;
  std::vector<std::unique_ptr<Communicator>> passes_, orders_, roll_calls_;
  std::vector<std::unique_ptr<RankProcesses>> ranks_;
};

}  // namespace isthmus
