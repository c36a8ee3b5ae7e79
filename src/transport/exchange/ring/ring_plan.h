// SPDX-License-Identifier: Apache-2.0
// A mean along a ring, made by passing partial sums on: `bench` compares it with the exchange of
// runs (transport/exchange/reduction.h). Pure functions.
//
// The vector has as many sections as members, each with a member as its root. The sum of a section
// goes once round the ring, from the root's successor to the root, and its mean once more. So each
// member sends 2 (M - 1) / M vectors, to its successor alone, in 2 (M - 1) hops.
//
// A member adds, per value in fp32, from 0 the decoded sum of its predecessor, then its own
// contribution after the codec. The root's successor sends its contribution; the other members
// encode their sums; the root divides by M and encodes the mean. So the bits depend on the order of
// the members, and the error of M values grows with the hops. If an encoding loses at most `e` of
// the largest value of a block, and contributions are at most A, the mean's error is
//   e A (2 + (M - 1) / 2 - 1 / M)   to first order,
// and 2 e A in the exchange of runs.
#pragma once

#include <cstddef>
#include <vector>

#include "transport/exchange/reduction.h"

namespace isthmus {

struct RingPlan {
  ReductionPlan cut;        // a part's owner is its root
  std::vector<int> next;    // by member: its successor
  std::vector<int> before;  // by member: its predecessor

  [[nodiscard]] int root(std::size_t part) const { return cut.parts[part].owner.value(); }
  [[nodiscard]] int next_of(int member) const { return next[static_cast<std::size_t>(member)]; }
  [[nodiscard]] int before_of(int member) const { return before[static_cast<std::size_t>(member)]; }
  /// The member begins the part's sum: no sum comes to it.
  [[nodiscard]] bool begins_sum(std::size_t part, int member) const {
    return before_of(member) == root(part);
  }
  /// The member passes the part's mean on.
  [[nodiscard]] bool passes_mean(std::size_t part, int member) const {
    return next_of(member) != root(part);
  }
};

/// Cuts n values for `members`, like a reduce of runs. `order`: the members along the ring, each
/// once; empty: by number. REQUIRES: two members or more; a codec that is not sparse; a valid
/// order.
[[nodiscard]] RingPlan make_ring_plan(const Codec& codec, std::size_t n, int members,
                                      std::vector<int> order = {});

}  // namespace isthmus
