// SPDX-License-Identifier: Apache-2.0
// Which rank of a mesh goes where: of the orders in which its dimensions can lie beside one
// another, the one whose groups use the links best (Holmes' idea, arXiv:2312.03549: the dimension
// that talks least, or whose messages hide best, gets the slow link). A mesh numbers its ranks
// tensor, data, pipeline from the innermost; in that order rank r is in slot r, slots being the
// places of ranks, node after node. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/mesh_time.h"

namespace isthmus::plan {

struct MeshPlacement {
  MeshOrder order = kMeshOrder;
  MeshTime time;            // of a step in it
  double rank_order_s = 0;  // of a step with rank r in slot r
  [[nodiscard]] bool in_rank_order() const { return order == kMeshOrder; }
};

/// One order of each use of the links, rank order the first: where each dimension has the same link
/// a step takes as long. A function of tp, pp, dp and whether there are virtual stages, so one list
/// serves all choices that have these in common.
[[nodiscard]] std::vector<MeshOrder> unlike_orders(const MeshChoice& choice,
                                                   const std::vector<LinkClass>& links);

/// Of these orders, whose first is rank order, the one with the shortest step; rank order unless
/// another is shorter by more than rounding. Deviation: Holmes places machines with unlike network
/// cards; here all nodes are alike, and what is chosen is the order of the dimensions.
/// costs: as for mesh_time; orders: unlike_orders. REQUIRES: mesh_problems is empty.
[[nodiscard]] MeshPlacement place_mesh(const MeshChoice& choice, const std::vector<RankCost>& costs,
                                       const MeshMachine& machine,
                                       const std::vector<MeshOrder>& orders);

/// The rank in each slot. REQUIRES: `order` holds each dimension once.
[[nodiscard]] std::vector<std::int64_t> ranks_by_slot(const MeshChoice& choice,
                                                      const MeshOrder& order);

/// "tensor, pipeline, data", the innermost first.
[[nodiscard]] std::string order_text(const MeshOrder& order);

}  // namespace isthmus::plan
