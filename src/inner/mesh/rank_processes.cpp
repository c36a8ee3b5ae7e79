// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/rank_processes.h"

#include <fmt/format.h>

#include <algorithm>

namespace isthmus {

std::chrono::milliseconds roll_call_wait(std::chrono::milliseconds patience) {
  using std::chrono::seconds;
  return std::clamp<std::chrono::milliseconds>(patience, seconds(1), seconds(10));
}

std::vector<std::string> rank_places(const MeshShape& mesh) {
  std::vector<std::string> places;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const MeshPosition at = mesh_position(mesh, rank);
    places.push_back(fmt::format("tp {}, pp {}, dp {}", at.tp, at.pp, at.dp));
  }
  return places;
}

std::string error_after_roll_call(RankProcesses& ranks, const std::string& cause) {
  ranks.passes.abort(cause);
  ranks.orders.abort(cause);
  try {
    ranks.roll_call.barrier();
    return fmt::format("{}; all ranks answer; {}", cause, kRankRemedy);
  } catch (const CommunicatorError& missing) {
    return fmt::format("the mesh has lost ranks: roll call of {}; it began with {}; {}",
                       missing.what(), cause, kRankRemedy);
  }
}

}  // namespace isthmus
