// SPDX-License-Identifier: Apache-2.0
// The threads that are the ranks of a mesh of devices: a RankTeam whose threads have their rank's
// device, while the driving one keeps that of the first rank. One thread drives a team.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "inner/mesh/rank_team.h"

namespace isthmus {

class CudaTeam {
 public:
  /// devices: of each rank. THROWS: as RankTeam.
  CudaTeam(const MeshShape& mesh, std::vector<int> devices, RankPatience patience);

  [[nodiscard]] std::size_t size() const { return team_.size(); }
  [[nodiscard]] int device(std::size_t rank) const { return devices_[rank]; }
  [[nodiscard]] Communicator& world(std::size_t rank) { return team_.world(rank); }
  /// body(rank) for all ranks side by side, each with its device. THROWS: as RankTeam::run.
  void run(const std::function<void(std::size_t rank)>& body);

 private:
  std::vector<int> devices_;
  RankTeam team_;
};

}  // namespace isthmus
