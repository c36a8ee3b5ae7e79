// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_placement.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/check.h"
#include "inner/mesh/mesh.h"

namespace isthmus::plan {

std::vector<MeshOrder> unlike_orders(const MeshChoice& choice,
                                     const std::vector<LinkClass>& links) {
  std::vector<MeshOrder> orders;
  std::set<std::array<std::size_t, 3>> seen;
  const auto take = [&](const MeshOrder& order) {
    std::array<std::size_t, 3> used{};
    for (const MeshDimension dimension : order) {
      used[static_cast<std::size_t>(dimension)] = slowest_link(choice, order, dimension, links);
    }
    if (seen.insert(used).second) orders.push_back(order);
  };
  take(kMeshOrder);
  if (links.size() == 1) return orders;
  MeshOrder order = {MeshDimension::kTensor, MeshDimension::kPipeline, MeshDimension::kData};
  do {
    take(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

MeshPlacement place_mesh(const MeshChoice& choice, const std::vector<RankCost>& costs,
                         const MeshMachine& machine, const std::vector<MeshOrder>& orders) {
  // Relative: what is no shorter than by this is the same step, summed in another order.
  constexpr double kRounding = 1e-9;
  ISTHMUS_CHECK(!orders.empty());
  ISTHMUS_CHECK(orders.front() == kMeshOrder);
  MeshPlacement best;
  for (const MeshOrder& order : orders) {
    const MeshTime time = mesh_time(choice, costs, machine, order);
    if (order == kMeshOrder) best.rank_order_s = time.step;
    if (order != kMeshOrder && time.step >= best.time.step * (1 - kRounding)) continue;
    best.time = time;
    best.order = order;
  }
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
  std::string text;
  for (const MeshDimension dimension : order) {
    if (!text.empty()) text += ", ";
    text += kMeshDimensionNames[static_cast<std::size_t>(dimension)];
  }
  return text;
}

}  // namespace isthmus::plan
