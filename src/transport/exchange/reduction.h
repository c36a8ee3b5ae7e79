// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a round and how its vector is cut: pure functions with equal results at every
// member (design: "the reduction semantics belong to the configuration").
//
// Mean over the contributors, the members of weight > 0, in member order, per value in fp32:
//   all weights equal:  (((0 + x_a) + x_b) + ...) / count
//   otherwise:          (((0 + w_a x_a) + w_b x_b) + ...) / W,  W = sum of the weights (fp64, then
//   fp32)
// each product, sum and quotient rounded once; x_m are decoded values, also the member's own.
// No contributor: zeros.
//
// In two levels (net.reduction = "groups") the participating members fall into groups, ordered by
// their first member. With at least two groups, one of them with at least two members:
//   group g:  p_g = Dec(Enc(m_g)), m_g the mean above over its contributors; for a group of one
//             member the values that it sent, not encoded again
//   result:   the mean above over the p_g in group order, with the weights W_g = sum of the weights
//             of g's contributors (fp64, in member order); groups without contributor take no part
// In all other cases the mean is that of one level. So a value of a reduce passes the codec three
// times instead of twice, a link between groups carries one encoded vector per group and direction
// instead of one per member, and the choice of the summing member changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"

namespace isthmus {

/// Encoded bytes of one part are at most this many. Half a frame: a result carries a few more
/// bytes.
inline constexpr std::size_t kMaxPartBytes = std::size_t{1} << 19;
/// Parts are the unit of pipelining, and a connection carries whole parts. In a reduce an owner
/// answers part by part, and the end waits for the last parts. So each part of a section (the tiles
/// that one member reduces) takes 1 / kPartsOfRest of the remaining bytes: large parts first, where
/// a frame's overhead costs time. In a gather or collect the end waits only for the slowest of many
/// connections, which may carry an early part, so all parts have 1 / kPartsOfWhole of the vector.
/// No part is smaller than kMinPartBytes (except a tile), below which the frame's header would
/// count, unless the run asks for less (net.chunk). Measured: README.md.
inline constexpr std::size_t kPartsOfRest = 64;
inline constexpr std::size_t kPartsOfWhole = 512;
inline constexpr std::size_t kMinPartBytes = std::size_t{1} << 15;

/// Consecutive tiles that travel in one frame.
struct Part {
  WorkerId owner{-1};  // reduces it; -1 in a gather or collect, where every member does
  std::size_t first_value = 0;
  std::size_t values = 0;
  std::size_t offset = 0;  // of its tiles in the encoded vector
  std::size_t bytes = 0;
};

struct ReductionPlan {
  ReductionKind kind = ReductionKind::kGather;  // never kAuto
  /// True if every member sends every part to all (gather, collect).
  [[nodiscard]] bool all_to_all() const { return kind != ReductionKind::kReduce; }
  std::vector<Part> parts;   // in order; together the whole vector
  std::uint32_t layout = 0;  // hash of everything the members must agree on
  /// Two levels: the participating members by group, in member order; else empty.
  std::vector<std::vector<WorkerId>> groups = {};
  std::vector<WorkerId> collectors =
      {};  // [part][group]: the member that sums a group's contributions to a part
  [[nodiscard]] bool two_levels() const { return !groups.empty(); }
  [[nodiscard]] WorkerId collector(std::size_t part, std::size_t group) const {
    return collectors[part * groups.size() + group];
  }
};

/// `kind` with kAuto resolved: gather for one or two members and for sparse codecs (same bytes as
/// reduce or fewer, one quantisation, one latency), reduce otherwise.
[[nodiscard]] ReductionKind resolve_reduction(ReductionKind kind, const Codec& codec, int members);

/// Cuts n values for `members`. Owner j of a reduce gets the tiles from floor(T S_j / S) on: T
/// tiles in all, S_j the sum of the shares before j. `shares` (one a member, or empty for even
/// shares) can follow the links: borders between owners are borders of tiles and change no bit. A
/// member may own nothing. A part has at most `chunk_bytes`, or one tile if a tile is larger; the
/// same on all members. REQUIRES: kind != kAuto; shares empty or of `members` values with a
/// positive sum.
[[nodiscard]] ReductionPlan make_reduction_plan(const Codec& codec, std::size_t n, int members,
                                                ReductionKind kind,
                                                std::span<const std::uint32_t> shares = {},
                                                std::size_t chunk_bytes = kMaxPartBytes);

/// Makes two levels of a reduce, if there is something to split (above). group_of: the group number
/// by member. live: by member, whether it takes part; empty: all do. A part's owner is the
/// collector of its own group; in other groups the members that own parts take turns, so that each
/// link between groups carries its share. `shares`: the owners', as given to make_reduction_plan.
void add_groups(ReductionPlan& plan, std::span<const std::uint32_t> group_of,
                const std::vector<bool>& live, std::span<const std::uint32_t> shares);

/// One member's encoded tiles and its weight. A member of weight 0 gives no bytes.
struct WeightedBytes {
  std::span<const std::byte> bytes;
  double weight = 1;
};

/// The same, owning its bytes.
struct EncodedShare {
  double weight = 1;
  std::vector<std::byte> bytes;
};

/// The member whose bytes did not decode.
struct ReduceError {
  std::size_t member = 0;
  std::string what;
};

/// Mean of the members' tiles, as defined above. members: in member order, each the encoding of
/// mean.size() values. RETURNS: ReduceError; `mean` is then unspecified.
[[nodiscard]] Expected<void, ReduceError> reduce_tiles(const Codec& codec,
                                                       std::span<const WeightedBytes> members,
                                                       std::span<float> mean);

}  // namespace isthmus
