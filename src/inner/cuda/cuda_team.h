// SPDX-License-Identifier: Apache-2.0
// The threads that are the ranks of a mesh of devices: a RankTeam in which each thread has its
// rank's device; the driving thread keeps the first rank's. One thread drives a team.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "inner/mesh/rank_team.h"

namespace isthmus {

class CudaTeam {
 public:
  /// devices: one per rank. THROWS: as RankTeam.
  CudaTeam(const MeshShape& mesh, std::vector<int> devices, RankPatience patience);

  [[nodiscard]] std::size_t size() const { return team_.size(); }
  [[nodiscard]] int device(std::size_t rank) const { return devices_[rank]; }
  [[nodiscard]] Communicator& world(std::size_t rank) { return team_.world(rank); }
  /// Runs body(rank) on all ranks concurrently, each with its device. THROWS: as RankTeam::run.
  void run(const std::function<void(std::size_t rank)>& body);

 private:
  std::vector<int> devices_;
  RankTeam team_;
};

}  // namespace isthmus
