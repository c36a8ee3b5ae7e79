// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include "core/base/rng.h"

namespace isthmus::this_file {
namespace {

std::vector<float> normal_vector(std::uint64_t seed, std::size_t n) {
  const Rng rng{seed, Stream::kTestData};
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(rng.normal(i));
  }
  return x;
}

TEST(ReductionPlan, PartsCoverTheVectorOnceOnTileBorders) {
  for (const char* name : {"fp32", "bf16", "int8:256"}) {
    const auto codec = make_codec(name);
    for (const std::size_t n : {0u, 1u, 4095u, 4096u, 4097u, 100000u, 3000000u}) {
      for (const int members : {1, 2, 3, 5, 8}) {
        for (const ReductionKind kind :
             {ReductionKind::kReduce, ReductionKind::kGather, ReductionKind::kCollect}) {
          const ReductionPlan plan = make_reduction_plan(*codec, n, members, kind);
          std::size_t value = 0;
          std::size_t byte = 0;
          int owner = -1;
          for (const Part& part : plan.parts) {
            EXPECT_EQ(part.first_value, value);
            EXPECT_EQ(part.first_value % kTileValues, 0u);
            EXPECT_EQ(part.offset, byte);
            EXPECT_GT(part.values, 0u);
            EXPECT_LE(part.bytes, kMaxPartBytes);
            EXPECT_GE(part.owner.value(), owner);
            EXPECT_LT(part.owner.value(), members);
            owner = part.owner.value();
            value += part.values;
            byte += part.bytes;
          }
          EXPECT_EQ(value, n);
          EXPECT_EQ(byte, encoded_bytes(*codec, n)) << name << " n " << n << " M " << members;
        }
      }
    }
  }
}

TEST(ReductionPlan, PartsOfAReduceAreLargeAtFirstAndSmallAtLast) {
  const auto codec = make_codec("fp32");
  constexpr std::size_t kTile = 16384;
  using Sizes = std::vector<std::size_t>;
  const auto tiles_of_parts = [&](std::size_t tiles, int members, ReductionKind kind) {
    Sizes sizes;
    for (const Part& part : make_reduction_plan(*codec, tiles * kTileValues, members, kind).parts) {
      if (part.owner.value() <= 0) sizes.push_back(part.bytes / kTile);
    }
    return sizes;
  };
  EXPECT_EQ(tiles_of_parts(2 * 1, 2, ReductionKind::kReduce), (Sizes{1}));
  EXPECT_EQ(tiles_of_parts(2 * 5, 2, ReductionKind::kReduce), (Sizes{2, 2, 1}));  // 32 KiB
  // One in 64 of what is left: of 320 tiles 5, of 315, 311, ... to 259 4, then 3.
  const Sizes some = tiles_of_parts(2 * 320, 2, ReductionKind::kReduce);
  EXPECT_EQ(some[0], 5u);
  EXPECT_EQ(std::ranges::count(some, 4u), 15);
  EXPECT_EQ(some[some.size() - 2], 2u);
  EXPECT_EQ(std::accumulate(some.begin(), some.end(), std::size_t{0}), 320u);
  EXPECT_TRUE(std::ranges::is_sorted(some, std::greater()));
  EXPECT_EQ(tiles_of_parts(9000, 2, ReductionKind::kReduce).front() * kTile, kMaxPartBytes);
  // A gather's are alike.
  EXPECT_EQ(tiles_of_parts(250, 2, ReductionKind::kGather), Sizes(125, 2));
  EXPECT_EQ(tiles_of_parts(512 * 10, 2, ReductionKind::kGather), Sizes(512, 10));
  EXPECT_EQ(tiles_of_parts(512 * 100, 2, ReductionKind::kCollect).front() * kTile, kMaxPartBytes);

  const auto wide = make_codec("int8");
  const ReductionPlan plan = make_reduction_plan(*wide, 9 * kTileValues, 2, ReductionKind::kGather);
  ASSERT_EQ(plan.parts.size(), 2u);  // seven tiles of 4 KiB and a few bytes, and two
  EXPECT_EQ(plan.parts[0].values, 7 * kTileValues);
}

TEST(ReductionPlan, SharesMoveOwnersByTiles) {
  const auto codec = make_codec("fp32");
  const std::vector<std::uint32_t> shares = {1, 0, 3};
  const ReductionPlan plan =
      make_reduction_plan(*codec, 8 * kTileValues, 3, ReductionKind::kReduce, shares);
  std::vector<std::size_t> owned(3);
  for (const Part& part : plan.parts) {
    owned[static_cast<std::size_t>(part.owner.value())] += part.values / kTileValues;
  }
  EXPECT_EQ(owned, (std::vector<std::size_t>{2, 0, 6}));
}

TEST(ReductionPlan, LayoutTellsUnlikeConfigurationsApart) {
  const auto fp32 = make_codec("fp32");
  const auto int8 = make_codec("int8:256");
  const auto layout = [](const Codec& codec, std::size_t n, int members, ReductionKind kind) {
    return make_reduction_plan(codec, n, members, kind).layout;
  };
  const std::uint32_t base = layout(*fp32, 5000, 3, ReductionKind::kReduce);
  EXPECT_EQ(base, layout(*fp32, 5000, 3, ReductionKind::kReduce));
  EXPECT_NE(base, layout(*int8, 5000, 3, ReductionKind::kReduce));
  EXPECT_NE(base, layout(*fp32, 5001, 3, ReductionKind::kReduce));
  EXPECT_NE(base, layout(*fp32, 5000, 4, ReductionKind::kReduce));
  EXPECT_NE(base, layout(*fp32, 5000, 3, ReductionKind::kGather));
  EXPECT_NE(base, layout(*fp32, 5000, 3, ReductionKind::kCollect));
  EXPECT_NE(layout(*fp32, 5000, 3, ReductionKind::kGather),
            layout(*fp32, 5000, 3, ReductionKind::kCollect));
}

// Sums begin with the first contributor's values in the place of zeros, and must not show it: a
// mean of zeros is +0 whatever their signs are.
TEST(Reduction, SumsHaveTheBitsOfSumsThatBeginWithZeros) {
  const auto codec = make_codec("fp32");
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {-0.0f, 0.0f, 1.0f, -1.0f, 1e-45f, -1e-45f, 3e38f, inf};
  std::size_t zeros = 0;
  for (const std::size_t members : {1u, 2u, 3u}) {
    for (std::size_t choice = 0; choice < 8 * 8 * 8; ++choice) {
      std::vector<float> values;
      for (std::size_t m = 0; m < members; ++m) values.push_back(special[choice >> (3 * m) & 7]);
      std::vector<Encoded> encoded;
      std::vector<WeightedBytes> inputs;
      for (const float value : values) encoded.push_back(encode(*codec, std::span(&value, 1)));
      for (const Encoded& each : encoded) inputs.push_back({each.bytes, 2.0});
      float want = 0;
      for (const float value : values) want += value;
      want /= static_cast<float>(members);
      float mean = 7;
      ASSERT_TRUE(reduce_tiles(*codec, inputs, std::span(&mean, 1)).has_value());
      EXPECT_EQ(std::bit_cast<std::uint32_t>(mean), std::bit_cast<std::uint32_t>(want))
          << members << " members, choice " << choice;
      zeros += mean == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(zeros, 0u);
  float nobody = 7;
  const std::vector<WeightedBytes> absent = {{{}, 0.0}, {{}, 0.0}};
  ASSERT_TRUE(reduce_tiles(*codec, absent, std::span(&nobody, 1)).has_value());
  EXPECT_EQ(nobody, 0.0f);
}

TEST(ReductionPlan, AutoGathersForTwoAndReducesForMore) {
  const auto codec = make_codec("fp32");
  EXPECT_EQ(resolve_reduction(ReductionKind::kAuto, *codec, 1), ReductionKind::kGather);
  EXPECT_EQ(resolve_reduction(ReductionKind::kAuto, *codec, 2), ReductionKind::kGather);
  EXPECT_EQ(resolve_reduction(ReductionKind::kAuto, *codec, 3), ReductionKind::kReduce);
  EXPECT_EQ(resolve_reduction(ReductionKind::kReduce, *codec, 2), ReductionKind::kReduce);
}

TEST(ReduceTiles, EqualWeightsGiveTheBitsOfANaiveLoop) {
  const auto codec = make_codec("fp32");
  constexpr std::size_t kValues = 2 * kTileValues + 77;
  for (const std::size_t members : {1u, 2u, 3u, 5u}) {
    std::vector<Encoded> encoded;
    std::vector<float> expected(kValues, 0.0f);
    for (std::size_t m = 0; m < members; ++m) {
      const std::vector<float> x = normal_vector(m, kValues);
      encoded.push_back(encode(*codec, x));
      for (std::size_t i = 0; i < kValues; ++i) {
        expected[i] += x[i];
      }
    }
    for (float& value : expected) {
      value /= static_cast<float>(members);
    }
    std::vector<WeightedBytes> inputs;
    for (const Encoded& e : encoded) {
      inputs.push_back({e.bytes, 3.5});
    }
    std::vector<float> mean(kValues);
    ASSERT_TRUE(reduce_tiles(*codec, inputs, mean).has_value());
    EXPECT_EQ(mean, expected) << members << " members";
  }
}

TEST(ReduceTiles, WeightsAreSharesOfTheMeanAndZeroTakesNoPart) {
  const auto codec = make_codec("fp32");
  const std::vector<float> a = {1, 2, 4};
  const std::vector<float> c = {5, -2, 8};
  const Encoded ea = encode(*codec, a);
  const Encoded ec = encode(*codec, c);
  std::vector<float> mean(3);
  const std::vector<WeightedBytes> inputs = {{ea.bytes, 3}, {{}, 0}, {ec.bytes, 1}};
  ASSERT_TRUE(reduce_tiles(*codec, inputs, mean).has_value());
  EXPECT_EQ(mean, (std::vector<float>{2, 1, 5}));  // (3 a + c) / 4, exact
  const std::vector<WeightedBytes> nobody = {{{}, 0}, {{}, 0}};
  ASSERT_TRUE(reduce_tiles(*codec, nobody, mean).has_value());
  EXPECT_EQ(mean, (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace isthmus::this_file
