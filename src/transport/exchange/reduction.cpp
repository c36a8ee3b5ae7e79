// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus {
namespace {

/// Borders of the owners' tiles: `members` + 1 values from 0 to `tiles`.
std::vector<std::size_t> owner_borders(std::size_t tiles, int members,
                                       std::span<const std::uint32_t> shares) {
  const std::vector<std::uint32_t> even(static_cast<std::size_t>(members), 1);
  const std::span<const std::uint32_t> share = shares.empty() ? std::span(even) : shares;
  ISTHMUS_CHECK(share.size() == even.size(), share.size(), members);
  const std::uint64_t sum = std::accumulate(share.begin(), share.end(), std::uint64_t{0});
  ISTHMUS_CHECK(sum > 0);
  std::vector<std::size_t> borders{0};
  std::uint64_t before = 0;
  for (const std::uint32_t s : share) {
    before += s;
    borders.push_back(static_cast<std::size_t>(tiles * before / sum));
  }
  return borders;
}

/// The values that one member reduces, or that all take in.
struct Section {
  std::size_t first_tile = 0;
  std::size_t end_tile = 0;
  WorkerId owner{-1};
};

void append_parts(const Codec& codec, std::size_t n, const Section& section,
                  std::size_t chunk_bytes, std::vector<Part>& parts) {
  const std::size_t tile_bytes = codec.encoded_bytes(kTileValues);
  ISTHMUS_CHECK(tile_bytes > 0, codec.name());
  ISTHMUS_CHECK(tile_bytes <= kMaxPartBytes, codec.name(), tile_bytes);
  for (std::size_t tile = section.first_tile; tile < section.end_tile;) {
    // For a reduce the remaining values, for a gather or collect all of them.
    const std::size_t share =
        section.owner.value() >= 0
            ? (section.end_tile - tile) * tile_bytes / kPartsOfRest
            : (section.end_tile - section.first_tile) * tile_bytes / kPartsOfWhole;
    const std::size_t usual = std::clamp(share, kMinPartBytes, kMaxPartBytes);
    const std::size_t tiles = std::max<std::size_t>(1, std::min(usual, chunk_bytes) / tile_bytes);
    const std::size_t last = std::min(tile + tiles, section.end_tile);
    const std::size_t begin = tile * kTileValues;
    const std::size_t values = std::min(last * kTileValues, n) - begin;
    parts.push_back({.owner = section.owner,
                     .first_value = begin,
                     .values = values,
                     .offset = tile * tile_bytes,
                     .bytes = encoded_bytes(codec, values)});
    tile = last;
  }
}

struct Grouping {
  std::vector<std::vector<WorkerId>> groups;  // in order of their first member
  std::vector<std::size_t> of;                // by member; no group for a member that takes no part
};

Grouping group_members(std::span<const std::uint32_t> group_of, const std::vector<bool>& live) {
  Grouping result;
  std::vector<std::uint32_t> names;  // by group
  for (std::size_t m = 0; m < group_of.size(); ++m) {
    if (!live.empty() && !live[m]) {
      result.of.push_back(group_of.size());
      continue;
    }
    const auto name = std::ranges::find(names, group_of[m]);
    const auto g = static_cast<std::size_t>(name - names.begin());
    if (name == names.end()) {
      names.push_back(group_of[m]);
      result.groups.emplace_back();
    }
    result.groups[g].push_back(WorkerId(static_cast<int>(m)));
    result.of.push_back(g);
  }
  return result;
}

/// The member of a group that has least work for its share; of several the first. If all shares are
/// 0, some member has to do it.
WorkerId least_loaded(const std::vector<WorkerId>& group, std::span<const std::uint32_t> shares,
                      const std::vector<std::uint64_t>& load) {
  const auto share = [&](WorkerId rank) {
    return shares.empty() ? 1 : shares[static_cast<std::size_t>(rank.value())];
  };
  const bool nobody = std::ranges::none_of(group, [&](WorkerId rank) { return share(rank) > 0; });
  const auto busy = [&](WorkerId rank) {
    const auto bytes = static_cast<double>(load[static_cast<std::size_t>(rank.value())]);
    return bytes / (nobody ? 1 : share(rank));
  };
  std::optional<WorkerId> best;
  for (const WorkerId rank : group) {
    if ((nobody || share(rank) > 0) && (!best || busy(rank) < busy(*best))) best = rank;
  }
  return *best;
}

/// The weights' effect on the sum, worked out once for all tiles.
struct Weighting {
  std::vector<float> factor;  // per member; 0 takes no part
  bool equal = true;          // factors of the contributors are all 1
  float divisor = 0;          // 0: no member contributes
  float inverse = 0;          // for a divisor whose inverse is exact: the product rounds alike
};

Weighting weigh(std::span<const WeightedBytes> members) {
  Weighting result;
  double total = 0;
  double first = 0;
  int count = 0;
  for (const WeightedBytes& member : members) {
    result.factor.push_back(static_cast<float>(member.weight));
    if (member.weight > 0) {
      first = count == 0 ? member.weight : first;
      result.equal = result.equal && member.weight == first;
      total += member.weight;
      ++count;
    }
  }
  result.divisor = result.equal ? static_cast<float>(count) : static_cast<float>(total);
  // Of a power of two within fp32's normal range, and so is the inverse. Vectors are divided at a
  // quarter of the speed at which they are multiplied.
  int exponent = 0;
  if (result.equal && count > 0 && std::frexp(result.divisor, &exponent) == 0.5f) {
    result.inverse = 1 / result.divisor;
  }
  return result;
}

// The sum begins with the first contributor's decoded values and not with zeros, which saves a
// pass. A zero added at the end has the effect of a zero added first: it changes sums of zeros
// alone.
Expected<void, ReduceError> reduce_tile(const Codec& codec, std::span<const WeightedBytes> members,
                                        const Weighting& weighting, std::span<float> mean) {
  std::array<float, kTileValues> scratch;
  const std::span<float> decoded = std::span(scratch).first(mean.size());
  bool empty = true;
  if (!weighting.equal || weighting.divisor == 0) std::ranges::fill(mean, 0.0f);
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m].weight <= 0) {
      continue;
    }
    const Expected<void, DecodeError> ok = !weighting.equal
                                               ? codec.decode(members[m].bytes, decoded)
                                           : empty ? codec.decode(members[m].bytes, mean)
                                                   : codec.decode_add(members[m].bytes, mean);
    empty = false;
    if (!ok) {
      return Unexpected<ReduceError>(ReduceError{m, ok.error().what});
    }
    if (!weighting.equal) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] += weighting.factor[m] * decoded[i];
      }
    }
  }
  if (weighting.divisor > 0 && weighting.inverse > 0) {
    for (float& value : mean) value = (value + 0.0f) * weighting.inverse;
  } else if (weighting.divisor > 0) {
    for (float& value : mean) value = (value + 0.0f) / weighting.divisor;
  }
  return {};
}

}  // namespace

ReductionKind resolve_reduction(ReductionKind kind, const Codec& codec, int members) {
  if (kind != ReductionKind::kAuto) {
    return kind;
  }
  return members <= 2 || codec.sparse() ? ReductionKind::kGather : ReductionKind::kReduce;
}

ReductionPlan make_reduction_plan(const Codec& codec, std::size_t n, int members,
                                  ReductionKind kind, std::span<const std::uint32_t> shares,
                                  std::size_t chunk_bytes) {
  ISTHMUS_CHECK(chunk_bytes > 0);
  ISTHMUS_CHECK(kind != ReductionKind::kAuto);
  ISTHMUS_CHECK(members >= 1, members);
  const std::size_t tiles = (n + kTileValues - 1) / kTileValues;
  ReductionPlan plan{.kind = kind, .parts = {}, .layout = 0};
  std::string agreed = fmt::format("{} {} {}", codec.name(), n, members);
  if (plan.all_to_all()) {
    append_parts(codec, n, {0, tiles, WorkerId(-1)}, chunk_bytes, plan.parts);
    agreed += kind == ReductionKind::kGather ? " gather" : " collect";
  } else {
    const std::vector<std::size_t> border = owner_borders(tiles, members, shares);
    for (int owner = 0; owner < members; ++owner) {
      const auto j = static_cast<std::size_t>(owner);
      append_parts(codec, n, {border[j], border[j + 1], WorkerId(owner)}, chunk_bytes, plan.parts);
      agreed += fmt::format(" {}", border[j + 1]);
    }
  }
  if (chunk_bytes < kMaxPartBytes) agreed += fmt::format(" chunk {}", chunk_bytes);
  plan.layout = crc32c(std::as_bytes(std::span(agreed)));
  return plan;
}

void add_groups(ReductionPlan& plan, std::span<const std::uint32_t> group_of,
                const std::vector<bool>& live, std::span<const std::uint32_t> shares) {
  if (plan.kind != ReductionKind::kReduce) return;
  const Grouping grouping = group_members(group_of, live);
  const bool some_pair = std::ranges::any_of(
      grouping.groups, [](const std::vector<WorkerId>& group) { return group.size() > 1; });
  if (grouping.groups.size() < 2 || !some_pair) return;
  plan.groups = grouping.groups;
  std::vector<std::uint64_t> collected(
      group_of.size());  // bytes, by member, of other owners' parts
  for (const Part& part : plan.parts) {
    const std::size_t home = grouping.of[static_cast<std::size_t>(part.owner.value())];
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const WorkerId collector =
          g == home ? part.owner : least_loaded(plan.groups[g], shares, collected);
      if (g != home) collected[static_cast<std::size_t>(collector.value())] += part.bytes;
      plan.collectors.push_back(collector);
    }
  }
  std::string agreed = fmt::format("{} groups", plan.layout);
  for (const std::size_t group : grouping.of) agreed += fmt::format(" {}", group);
  plan.layout = crc32c(std::as_bytes(std::span(agreed)));
}

Expected<void, ReduceError> reduce_tiles(const Codec& codec, std::span<const WeightedBytes> members,
                                         std::span<float> mean) {
  const Weighting weighting = weigh(members);
  const std::size_t expected = encoded_bytes(codec, mean.size());
  for (const WeightedBytes& member : members) {
    ISTHMUS_CHECK(member.bytes.size() == (member.weight > 0 ? expected : 0), member.bytes.size(),
                  member.weight, expected);
  }
  std::vector<WeightedBytes> tile(members.begin(), members.end());
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < mean.size(); begin += kTileValues) {
    const std::size_t values = std::min(kTileValues, mean.size() - begin);
    const std::size_t bytes = codec.encoded_bytes(values);
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (members[m].weight > 0) {
        tile[m].bytes = members[m].bytes.subspan(at, bytes);
      }
    }
    if (auto ok = reduce_tile(codec, tile, weighting, mean.subspan(begin, values)); !ok) {
      return ok;
    }
    at += bytes;
  }
  return {};
}

}  // namespace isthmus
