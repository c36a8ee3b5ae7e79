// SPDX-License-Identifier: Apache-2.0
// Means along rings and trees, made by passing partial sums on: `bench` compares them with the
// exchange of runs (transport/exchange/reduction.h). Pure functions.
//
// A part of the vector has a root. Its sum grows towards the root along a tree; its mean returns
// from the root along another tree:
//   ring    as many sections as members, each with a member as its root. The sum of a section goes
//           once round the ring, from the root's successor to the root, and its mean once more. So
//           each member sends 2 (M - 1) / M vectors, to its successor alone, in 2 (M - 1) hops.
//   binary  one root; a member adds its two children's sums to its contribution. So it sends one
//           vector up and one to each child, in 2 floor(log2 M) hops.
//
// A member adds, per value in fp32, the decoded sums of its children, in member order from 0, then
// its own contribution after the codec. A member without children sends its contribution; one with
// children encodes its sum; the root divides by M and encodes the mean. So the bits depend on the
// tree and on the members' order in it, and the error of M values grows with the hops. If an
// encoding loses at most `e` of the largest value of a block, contributions are at most A, and s_m
// counts m and the members below it, the mean's error is
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

/// The members' places: along the ring, or level by level, the root first.
struct TreeShape {
  TreeKind kind = TreeKind::kRing;
  std::vector<int> order = {};  // all members, each once; empty: by number
};

/// The path of all parts of one root.
struct SumTree {
  std::vector<int> up;    // by member: receiver of its sum; -1 at the root
  std::vector<int> down;  // by member: sender of the mean; -1 at the root

  [[nodiscard]] bool root(int member) const { return up[static_cast<std::size_t>(member)] < 0; }
  /// The members whose sums `member` receives, in member order.
  [[nodiscard]] std::vector<int> children(int member) const;
  /// The members to which `member` sends the mean.
  [[nodiscard]] std::vector<int> followers(int member) const;
};

struct TreePlan {
  ReductionPlan cut;           // a part's owner is its root
  std::vector<SumTree> trees;  // by root; empty for members that are no root

  [[nodiscard]] const SumTree& tree(std::size_t part) const {
    return trees[static_cast<std::size_t>(cut.parts[part].owner.value())];
  }
};

/// Cuts n values for `members`, like a reduce of runs. REQUIRES: a codec that is not sparse; a
/// valid shape.order.
[[nodiscard]] TreePlan make_tree_plan(const Codec& codec, std::size_t n, int members,
                                      const TreeShape& shape);

}  // namespace isthmus
