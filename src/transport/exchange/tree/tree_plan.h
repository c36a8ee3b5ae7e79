// SPDX-License-Identifier: Apache-2.0
// Means that are made by passing partial sums on, as rings and trees do: what `bench` sets beside
// the exchange of runs (transport/exchange/reduction.h). Pure functions.
//
// A part of the vector has a root. Its sum grows on the way there along a tree, its mean comes back
// from there along another:
//   ring    as many sections as members, each with a member as its root. The sum of a section goes
//           once round the ring, from the root's successor to the root, and its mean once more. So
//           each member sends 2 (M - 1) / M vectors, to its successor alone, in 2 (M - 1) hops.
//   binary  one root; a member adds what its two children send to what it has. So a member sends
//           one vector up and one to each child, in 2 floor(log2 M) hops.
//
// A member adds, per value in fp32, what its children send, decoded, in member order from 0, then
// what it contributes itself, through the codec. A member without children sends on what it
// contributes; one with children encodes its sum; the root divides by M, and encodes the mean. So
// the bits depend on the tree and on the order of members in it, and what M values lose grows with
// the hops. Where an encoding loses at most `e` of the largest value of a block, contributions are
// at most A, and s_m members are m and those below it, the mean is off by
//   e A (2 + sum of s_m / M over all m that have children and are no root)   to first order,
// which is e A (2 + (M - 1) / 2 - 1 / M) in a ring of M, and 2 e A in the exchange of runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/exchange/reduction.h"

namespace isthmus {

enum class TreeKind : std::uint8_t { kRing, kBinary };

/// Which member stands where: along the ring, or level by level, the root first.
struct TreeShape {
  TreeKind kind = TreeKind::kRing;
  std::vector<int> order = {};  // all members, each once; empty: by number
};

/// The way of all parts of one root.
struct SumTree {
  std::vector<int> up;    // by member: to whom it sends its sum; -1 at the root
  std::vector<int> down;  // by member: who sends it the mean; -1 at the root

  [[nodiscard]] bool root(int member) const { return up[static_cast<std::size_t>(member)] < 0; }
  /// Whose sums `member` gets, in member order.
  [[nodiscard]] std::vector<int> children(int member) const;
  /// To whom `member` sends the mean.
  [[nodiscard]] std::vector<int> followers(int member) const;
};

struct TreePlan {
  ReductionPlan cut;           // a part's owner is its root
  std::vector<SumTree> trees;  // by root; of who is none, empty

  [[nodiscard]] const SumTree& tree(std::size_t part) const {
    return trees[static_cast<std::size_t>(cut.parts[part].owner.value())];
  }
};

/// Cuts n values for `members`, as a reduce of runs is cut. REQUIRES: a codec that is not sparse;
/// shape.order as said there.
[[nodiscard]] TreePlan make_tree_plan(const Codec& codec, std::size_t n, int members,
                                      const TreeShape& shape);

}  // namespace isthmus
