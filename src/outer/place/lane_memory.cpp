// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane_memory.h"

#include <numeric>

#include "outer/parts/contribution_sample.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {
namespace {

constexpr std::int64_t kValue = sizeof(float);

/// The bytes that exist of the outer gradient of n values until it is sent: codes, a squared norm a
/// tile, and the tiles that a report samples.
std::int64_t encoded_part(const Codec& codec, std::size_t n, std::size_t sampled) {
  const std::size_t bytes = encoded_bytes(codec, n) + tiles_of(n) * sizeof(double) +
                            sampled * kTileValues * sizeof(float);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::size_t looked_at(std::size_t n, LaneRange lane) {
  const auto count = std::ranges::count_if(sampled_tiles(n), [&](std::size_t tile) {
    return tile * kTileValues >= lane.begin && tile * kTileValues < lane.end;
  });
  return static_cast<std::size_t>(count);
}

LaneDemand lane_demand(const MethodInfo& method, const OuterOptions& options,
                       std::span<const Parameter> parameters) {
  LaneDemand demand{.state_values = outer_state_values(method.name, options),
                    .fragments = {},
                    .codec = make_codec(codec_of(method, options))};
  for (const Fragment& each :
       make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own)) {
    demand.fragments.push_back(each.elements);
  }
  return demand;
}

LaneMemory lane_memory(const LaneDemand& demand, int ranks, int rank) {
  LaneMemory memory;
  for (const std::int64_t elements : demand.fragments) {
    const auto n = static_cast<std::size_t>(elements);
    const LaneRange lane = lane_of(n, ranks, rank);
    memory.values += static_cast<std::int64_t>(lane.size());
    std::int64_t encoding = static_cast<std::int64_t>(lane.size()) * kValue +
                            encoded_part(*demand.codec, lane.size(), looked_at(n, lane));
    if (rank == 0) encoding += encoded_part(*demand.codec, n, looked_at(n, {0, n}));
    memory.encoding = std::max(memory.encoding, encoding);
  }
  memory.kept = memory.values * demand.state_values * kValue;
  if (rank == 0) {
    memory.anchors =
        kValue * std::accumulate(demand.fragments.begin(), demand.fragments.end(), std::int64_t{0});
  }
  return memory;
}

}  // namespace isthmus::outer
