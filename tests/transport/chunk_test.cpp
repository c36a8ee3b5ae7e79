// SPDX-License-Identifier: Apache-2.0
// net.chunk: into how many frames a round's values are cut. No result depends on it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/run_in_process.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

constexpr int kMembers = 3;
constexpr std::size_t kValues = 40 * kTileValues + 100;  // 41 tiles
constexpr int kRounds = 2;  // the second with what the first has left over

/// Frames of a section of `tiles` tiles: a whole number of tiles in each, 32 KiB at most by itself
/// (a section this small would be cut into smaller ones otherwise).
std::size_t frames_of(std::size_t tiles, std::size_t tile_bytes, std::size_t chunk) {
  const std::size_t most = std::max<std::size_t>(1, std::min(chunk, kMinPartBytes) / tile_bytes);
  return (tiles + most - 1) / most;
}

/// Frames with values that all members send in a round.
std::size_t frames_of_round(ReductionKind kind, std::size_t tile_bytes, std::size_t chunk) {
  constexpr std::size_t kTiles = 41;
  if (kind != ReductionKind::kReduce) {
    return kMembers * (kMembers - 1) * frames_of(kTiles, tile_bytes, chunk);
  }
  std::size_t frames = 0;
  std::size_t before = 0;
  for (std::size_t owner = 1; owner <= kMembers; ++owner) {
    const std::size_t border = kTiles * owner / kMembers;
    frames += frames_of(border - before, tile_bytes, chunk);
    before = border;
  }
  return 2 * (kMembers - 1) * frames;  // to the owner from each other, and back
}

struct Outcome {
  std::map<int, std::vector<std::vector<float>>> results;  // by member, of each round
  std::map<int, std::vector<std::vector<std::byte>>> collected;
  std::uint64_t payload = 0, wire = 0;  // of all members
};

Outcome exchange(const std::string& name, ReductionKind kind, std::size_t chunk) {
  Outcome outcome;
  std::mutex mutex;
  const std::shared_ptr<const Codec> codec = make_codec(name);
  run_in_process(kMembers, {.retry_interval = kNothingIsLost, .chunk_bytes = chunk},
                 [&](WorkerContext& context) {
                   const int m = context.rank.value();
                   const Rng rng(static_cast<std::uint64_t>(m), Stream::kTestData);
                   std::vector<float> x(kValues);
                   for (int round = 1; round <= kRounds; ++round) {
                     for (std::size_t i = 0; i < kValues; ++i) {
                       x[i] = static_cast<float>(rng.normal(i, static_cast<std::uint32_t>(round)));
                     }
                     const SyncId id{FragmentId(0), StepIndex(round)};
                     const Ticket ticket = context.exchange.begin(
                         {.id = id,
                          .encoded = encode(*codec, x, context.exchange.key(id)),
                          .codec = codec,
                          .weight = 1.0 + m,
                          .kind = kind});
                     const auto reduced = context.exchange.wait(ticket, std::chrono::hours(1));
                     ASSERT_TRUE(reduced) << reduced.error().what;
                     const std::lock_guard lock(mutex);
                     outcome.results[m].push_back(reduced->values);
                     for (const Encoded& each : reduced->contributions)
                       outcome.collected[m].push_back(each.bytes);
                   }
                   const ByteCounts bytes = context.exchange.bytes();
                   const std::lock_guard lock(mutex);
                   outcome.payload += bytes.payload;
                   outcome.wire += bytes.wire;
                 });
  return outcome;
}

class Chunk : public testing::TestWithParam<ReductionKind> {};

TEST_P(Chunk, ChangesFramesAndNoBit) {
  const ReductionKind kind = GetParam();
  for (const std::string name : {"int8", "int4:rounding=stochastic", "fp32"}) {
    const std::size_t tile = make_codec(name)->encoded_bytes(kTileValues);
    const Outcome usual = exchange(name, kind, kMaxPartBytes);
    for (const std::size_t chunk : {tile, 2 * tile - 1, 3 * tile, std::size_t{1} << 18}) {
      const Outcome cut = exchange(name, kind, chunk);
      const std::string what = fmt::format("{}, {} bytes", name, chunk);
      EXPECT_EQ(cut.results, usual.results) << what;
      EXPECT_EQ(cut.collected, usual.collected) << what;
      EXPECT_EQ(cut.payload, usual.payload) << what;
      // Each frame more is a header and, of a result, a byte that says who has contributed.
      const auto more = static_cast<double>(kRounds * (frames_of_round(kind, tile, chunk) -
                                                       frames_of_round(kind, tile, kMaxPartBytes)));
      const double of_results = kind == ReductionKind::kReduce ? 0.5 : 0;
      EXPECT_EQ(static_cast<double>(cut.wire) - static_cast<double>(usual.wire),
                more * (static_cast<double>(kFrameOverheadBytes) + of_results))
          << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Chunk,
                         testing::Values(ReductionKind::kReduce, ReductionKind::kGather,
                                         ReductionKind::kCollect),
                         [](const auto& each) {
                           return std::string(each.param == ReductionKind::kReduce   ? "Reduce"
                                              : each.param == ReductionKind::kGather ? "Gather"
                                                                                     : "Collect");
                         });

TEST(ChunkPlan, ATileIsTheLeastAndFramesStayTheMost) {
  const auto codec = make_codec("fp32");  // a tile is 16 KiB
  const auto largest = [&](std::size_t tiles, std::size_t chunk) {
    const ReductionPlan plan =
        make_reduction_plan(*codec, tiles * kTileValues, 2, ReductionKind::kGather, {}, chunk);
    return std::ranges::max(plan.parts, {}, &Part::bytes).bytes;
  };
  EXPECT_EQ(largest(512 * 100, 1), 16384U);
  EXPECT_EQ(largest(512 * 100, 100'000), 6 * 16384U);
  EXPECT_EQ(largest(512 * 100, std::size_t{1} << 30), kMaxPartBytes);
}

TEST(ChunkPlan, UnlikeSizesAreUnlikeLayouts) {
  const auto codec = make_codec("fp32");
  const auto layout = [&](std::size_t chunk) {
    // One tile: as many parts whatever the size.
    return make_reduction_plan(*codec, 10, 2, ReductionKind::kGather, {}, chunk).layout;
  };
  EXPECT_NE(layout(1 << 16), layout(1 << 15));
  EXPECT_NE(layout(1 << 16), layout(kMaxPartBytes));
  EXPECT_EQ(layout(kMaxPartBytes),
            make_reduction_plan(*codec, 10, 2, ReductionKind::kGather).layout)
      << "as before there was the key";
}

}  // namespace
}  // namespace isthmus::this_file
