// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a round and how its vector is cut: pure functions that every member computes
// alike (design: "the reduction semantics belong to the configuration").
//
// Mean over the contributors, the members of weight > 0, in member order, per value in fp32:
//   all weights equal:  (((0 + x_a) + x_b) + ...) / count
//   otherwise:          (((0 + w_a x_a) + w_b x_b) + ...) / W,  W = sum of the weights (fp64, then
//   fp32)
// each product, sum and quotient rounded once; x_m are decoded values, the own ones too.
// No contributor: zeros.
//
// In two levels (net.reduction = "groups") the members that take part fall into groups, in order of
// their first. Where there are two groups at least, and one has two members at least:
//   group g:  p_g = Dec(Enc(m_g)), m_g the mean above over its contributors; of a group of one
//             member what that has sent, which is not encoded again
//   result:   the mean above over the p_g in group order, with the weights W_g = sum of the weights
//             of g's contributors (fp64, in member order); groups without contributor take no part
// Everywhere else, and with one group or groups of one, the mean is that of one level. So a result
// of a reduce has passed the codec three times instead of twice, a link between groups carries one
// encoded vector a group and way instead of one a member, and who sums what changes no bit.
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
/// Parts are the unit of pipelining, and connections get whole ones. Of a reduce an owner answers
/// part by part, and what is waited for in the end are the last: of a section, what one member
/// reduces, each takes one in kPartsOfRest of what is left, large at first, where a frame costs
/// time. In a gather or collect only the slowest of many connections is waited for, and what it has
/// taken may be of the first, so all have one in kPartsOfWhole. None is smaller than kMinPartBytes
/// (a tile may be), where the frame around a part would begin to count, unless the run asks for
/// less (net.chunk). Measured: README.md.
inline constexpr std::size_t kPartsOfRest = 64;
inline constexpr std::size_t kPartsOfWhole = 512;
inline constexpr std::size_t kMinPartBytes = std::size_t{1} << 15;

/// Consecutive tiles that travel in one frame.
struct Part {
  WorkerId owner{-1};  // who reduces it; -1 in a gather or collect, where everyone takes in all
  std::size_t first_value = 0;
  std::size_t values = 0;
  std::size_t offset = 0;  // of its tiles in the encoded vector
  std::size_t bytes = 0;
};

struct ReductionPlan {
  ReductionKind kind = ReductionKind::kGather;  // never kAuto
  /// True where every member sends every part to all (gather, collect).
  [[nodiscard]] bool all_to_all() const { return kind != ReductionKind::kReduce; }
  std::vector<Part> parts;   // in order; together the whole vector
  std::uint32_t layout = 0;  // hash of everything the members must agree on
  /// Of a reduce in two levels, else empty: who takes part, by group, in member order.
  std::vector<std::vector<WorkerId>> groups = {};
  std::vector<WorkerId> collectors =
      {};  // [part][group]: who sums a group's contributions to a part
  [[nodiscard]] bool two_levels() const { return !groups.empty(); }
  [[nodiscard]] WorkerId collector(std::size_t part, std::size_t group) const {
    return collectors[part * groups.size() + group];
  }
};

/// `kind` with kAuto resolved: gather for one or two members and for sparse codecs (same bytes as
/// reduce or fewer, one quantisation, one latency), reduce otherwise.
[[nodiscard]] ReductionKind resolve_reduction(ReductionKind kind, const Codec& codec, int members);

/// How the owners of a reduce share a vector that is about so large.
struct SharesOfSize {
  std::uint64_t bytes = 0;            // encoded
  std::vector<std::uint32_t> shares;  // one a member; empty: even
};

/// RETURNS: of `table`, whose sizes rise, the shares of the size nearest to `bytes` by ratio, of
/// two equally near ones the smaller. Products of doubles alone, so the same on all machines.
/// REQUIRES: an entry.
[[nodiscard]] std::span<const std::uint32_t> shares_of_size(std::span<const SharesOfSize> table,
                                                            std::uint64_t bytes);

/// A table's `shares` of n values: everyone who has a share owns a tile at least, where there are
/// as many tiles as shares that are not 0; who owns nothing cannot tell who has not begun, so of
/// two owners one shall not be lost to rounding. Else, and where everyone has one anyway, as they
/// are.
[[nodiscard]] std::vector<std::uint32_t> with_a_tile_each(std::span<const std::uint32_t> shares,
                                                          std::size_t n);

/// Cuts n values for `members`. Owner j of a reduce gets the tiles from floor(T S_j / S), T tiles
/// in all and S_j the shares before it; `shares` (one a member, or empty for even ones) can follow
/// the links, since owner borders are tile borders and change no bit. A member may own nothing.
/// A part has `chunk_bytes` at most, or one tile where that is larger; the same on all members.
/// REQUIRES: kind != kAuto; shares empty or of `members` values with a positive sum.
[[nodiscard]] ReductionPlan make_reduction_plan(const Codec& codec, std::size_t n, int members,
                                                ReductionKind kind,
                                                std::span<const std::uint32_t> shares = {},
                                                std::size_t chunk_bytes = kMaxPartBytes);

/// Makes two levels of a reduce, where there is something to split (above). group_of: by member,
/// equal numbers are one group; live: by member, who takes part, none: all. A part's owner collects
/// for its own group; in the others those who own something take turns, so that each link between
/// groups carries its share. `shares` are the owners', as make_reduction_plan had them.
void add_groups(ReductionPlan& plan, std::span<const std::uint32_t> group_of,
                const std::vector<bool>& live, std::span<const std::uint32_t> shares);

/// One member's encoded tiles and its weight. A member of weight 0 gives no bytes.
struct WeightedBytes {
  std::span<const std::byte> bytes;
  double weight = 1;
};

/// The same with bytes of its own.
struct EncodedShare {
  double weight = 1;
  std::vector<std::byte> bytes;
};

/// Which member's bytes did not decode.
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
