// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/tree/tree_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus {
namespace {

std::vector<int> places_of(const std::vector<int>& towards, int member) {
  std::vector<int> places;
  for (std::size_t m = 0; m < towards.size(); ++m) {
    if (towards[m] == member) places.push_back(static_cast<int>(m));
  }
  return places;
}

std::size_t at(int member) { return static_cast<std::size_t>(member); }

/// The sum of the section whose root stands at `root` of the ring, and its mean.
SumTree round_the_ring(const std::vector<int>& order, std::size_t root) {
  const std::size_t members = order.size();
  SumTree tree{.up = std::vector<int>(members, -1), .down = std::vector<int>(members, -1)};
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t next = (i + 1) % members;
    if (i != root) tree.up[at(order[i])] = order[next];
    if (next != root) tree.down[at(order[next])] = order[i];
  }
  return tree;
}

SumTree binary_tree(const std::vector<int>& order) {
  SumTree tree{.up = std::vector<int>(order.size(), -1), .down = {}};
  for (std::size_t i = 1; i < order.size(); ++i) tree.up[at(order[i])] = order[(i - 1) / 2];
  tree.down = tree.up;
  return tree;
}

}  // namespace

std::vector<int> SumTree::children(int member) const { return places_of(up, member); }

std::vector<int> SumTree::followers(int member) const { return places_of(down, member); }

TreePlan make_tree_plan(const Codec& codec, std::size_t n, int members, const TreeShape& shape) {
  ISTHMUS_CHECK(!codec.sparse(), codec.name());
  std::vector<int> order(at(members));
  std::iota(order.begin(), order.end(), 0);
  if (!shape.order.empty()) {
    std::vector<int> sorted = shape.order;
    std::ranges::sort(sorted);
    ISTHMUS_CHECK(sorted == order, members);
    order = shape.order;
  }
  const bool ring = shape.kind == TreeKind::kRing;
  TreePlan plan;
  plan.trees.resize(order.size());
  std::vector<std::uint32_t> shares;  // of the roots
  if (ring) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      plan.trees[at(order[i])] = round_the_ring(order, i);
    }
  } else {
    plan.trees[at(order.front())] = binary_tree(order);
    shares.resize(order.size());
    shares[at(order.front())] = 1;
  }
  plan.cut = make_reduction_plan(codec, n, members, ReductionKind::kReduce, shares);
  const std::string agreed = fmt::format("{} {} {}", plan.cut.layout, ring ? "ring" : "binary tree",
                                         fmt::join(order, " "));
  plan.cut.layout = crc32c(std::as_bytes(std::span(agreed)));
  return plan;
}

}  // namespace isthmus
