// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_placement.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "inner/mesh.h"

namespace isthmus::plan {

MeshPlacement place_mesh(const MeshChoice& choice, const std::vector<RankCost>& costs,
                         const MeshMachine& machine) {
  // Relative: what is no shorter than by this is the same step, summed in another order.
  constexpr double kRounding = 1e-9;
  MeshPlacement best;
  best.time = mesh_time(choice, costs, machine, kMeshOrder);
  best.rank_order_s = best.time.step;
  if (machine.links.size() == 1) return best;
  // A step's time is a function of the links alone, and many orders share them.
  std::set<std::array<std::size_t, 3>> seen = {best.time.links};
  MeshOrder order = {MeshDimension::kTensor, MeshDimension::kPipeline, MeshDimension::kData};
  do {
    std::array<std::size_t, 3> links{};
    for (const MeshDimension dimension : order) {
      links[static_cast<std::size_t>(dimension)] =
          slowest_link(choice, order, dimension, machine.links);
    }
    if (!seen.insert(links).second) continue;
    const MeshTime time = mesh_time(choice, costs, machine, order);
    if (time.step < best.time.step * (1 - kRounding)) {
      best.time = time;
      best.order = order;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

std::vector<std::int64_t> ranks_by_slot(const MeshChoice& choice, const MeshOrder& order) {
  const MeshShape shape{.tp = choice.tp, .pp = choice.pp, .dp = choice.dp};
  std::vector<std::int64_t> ranks;
  for (std::int64_t slot = 0; slot < choice.ranks(); ++slot) {
    MeshPosition at;
    std::int64_t rest = slot;
    const auto digit = [&rest](int size) {
      const auto value = static_cast<int>(rest % size);
      rest /= size;
      return value;
    };
    for (const MeshDimension dimension : order) {
      if (dimension == MeshDimension::kTensor) at.tp = digit(choice.tp);
      if (dimension == MeshDimension::kPipeline) at.pp = digit(choice.pp);
      if (dimension == MeshDimension::kData) at.dp = digit(choice.dp);
    }
    ranks.push_back(mesh_rank(shape, at));
  }
  return ranks;
}

std::string order_text(const MeshOrder& order) {
  constexpr std::array<std::string_view, 3> kNames = {"tensor", "pipeline", "data"};
  std::string text;
  for (const MeshDimension dimension : order) {
    if (!text.empty()) text += ", ";
    text += kNames[static_cast<std::size_t>(dimension)];
  }
  return text;
}

}  // namespace isthmus::plan
