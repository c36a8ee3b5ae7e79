// SPDX-License-Identifier: Apache-2.0
// The placement of a mesh's ranks: the order of its dimensions whose groups use the links best
// (Holmes' idea, arXiv:2312.03549: the dimension that communicates least, or whose messages overlap
// best, gets the slow link). A mesh numbers its ranks tensor, data, pipeline from the innermost; in
// that order rank r is in slot r. Slots are the places of ranks, node after node. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/mesh_time.h"

namespace isthmus::plan {

struct MeshPlacement {
  MeshOrder order = kMeshOrder;
  MeshTime time;            // of a step in that order
  double rank_order_s = 0;  // step time with rank r in slot r
  [[nodiscard]] bool in_rank_order() const { return order == kMeshOrder; }
};

/// One order for each different use of the links, rank order first: orders in which each dimension
/// has the same link have equal step times. A function of tp, pp, dp and whether there are virtual
/// stages, so one list serves all choices that share these.
[[nodiscard]] std::vector<MeshOrder> unlike_orders(const MeshChoice& choice,
                                                   const std::vector<LinkClass>& links);

/// The order with the shortest step; rank order, which is the first, unless another is shorter by
/// more than rounding. Deviation: Holmes places machines with different network cards; here all
/// nodes are equal, and only the order of the dimensions is chosen. costs: as for mesh_time;
/// orders: unlike_orders. REQUIRES: mesh_problems is empty.
[[nodiscard]] MeshPlacement place_mesh(const MeshChoice& choice, const std::vector<RankCost>& costs,
                                       const MeshMachine& machine,
                                       const std::vector<MeshOrder>& orders);

/// The rank in each slot. REQUIRES: `order` holds each dimension once.
[[nodiscard]] std::vector<std::int64_t> ranks_by_slot(const MeshChoice& choice,
                                                      const MeshOrder& order);

/// "tensor, pipeline, data", the innermost first.
[[nodiscard]] std::string order_text(const MeshOrder& order);

}  // namespace isthmus::plan
