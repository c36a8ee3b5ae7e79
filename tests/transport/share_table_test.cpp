// SPDX-License-Identifier: Apache-2.0
// Shares by the size of what is reduced (net.shares = "table"): which are taken, and that no result
// depends on them, though fragments of one run are cut in unlike ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "transport/engine_net.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint32_t> taken(const std::vector<SharesOfSize>& table, std::uint64_t bytes) {
  const std::span<const std::uint32_t> shares = shares_of_size(table, bytes);
  return {shares.begin(), shares.end()};
}

// Nearest by ratio: between 100 and 10,000 lies 1,000, which is as near to both.
TEST(SharesOfSize, AreThoseOfTheNearestSizeByRatio) {
  const std::vector<SharesOfSize> table = {{100, {1, 0}}, {10'000, {0, 1}}, {40'000, {}}};
  EXPECT_THAT(taken(table, 1), ElementsAre(1, 0));
  EXPECT_THAT(taken(table, 100), ElementsAre(1, 0));
  EXPECT_THAT(taken(table, 1000), ElementsAre(1, 0));
  EXPECT_THAT(taken(table, 1001), ElementsAre(0, 1));
  EXPECT_THAT(taken(table, 10'000), ElementsAre(0, 1));
  EXPECT_THAT(taken(table, 20'000), ElementsAre(0, 1));
  EXPECT_THAT(taken(table, 20'001), IsEmpty());
  EXPECT_THAT(taken(table, std::uint64_t{1} << 60), IsEmpty());
}

/// How many tiles each of `shares` owns of so many.
std::vector<std::size_t> owned_of(const std::vector<std::uint32_t>& shares, std::size_t tiles) {
  const auto codec = make_codec("fp32");
  const std::size_t n = tiles * kTileValues - 5;
  std::vector<std::size_t> owned(shares.size());
  for (const Part& part : make_reduction_plan(*codec, n, static_cast<int>(shares.size()),
                                              ReductionKind::kReduce, with_a_tile_each(shares, n))
                              .parts) {
    owned[static_cast<std::size_t>(part.owner.value())] +=
        (part.values + kTileValues - 1) / kTileValues;
  }
  return owned;
}

// A star of a table's size is played for all sizes near that one.
TEST(SharesOfSize, OfFewTilesEveryShareIsOneAtLeast) {
  for (const auto& shares : std::vector<std::vector<std::uint32_t>>{
           {63, 1}, {1, 63}, {0, 1, 0, 200}, {3, 1, 90, 1, 0, 7}, {5, 5, 5}}) {
    const std::size_t sum = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
    const std::size_t owners =
        shares.size() - static_cast<std::size_t>(std::ranges::count(shares, 0u));
    for (std::size_t tiles = owners; tiles <= 2 * sum; ++tiles) {
      const std::vector<std::size_t> owned = owned_of(shares, tiles);
      EXPECT_EQ(std::accumulate(owned.begin(), owned.end(), std::size_t{0}), tiles);
      for (std::size_t m = 0; m < shares.size(); ++m) {
        EXPECT_EQ(owned[m] > 0, shares[m] > 0) << m << " of " << tiles << " tiles";
      }
    }
  }
}

TEST(SharesOfSize, OfEnoughTilesAreAsTheyWere) {
  const std::vector<std::uint32_t> shares = {3, 1, 90, 1, 0, 7};
  EXPECT_EQ(with_a_tile_each(shares, 102 * kTileValues), shares);
  EXPECT_THAT(with_a_tile_each({}, 102 * kTileValues), IsEmpty());
  const std::vector<std::uint32_t> of_three = {2, 1, 1};
  EXPECT_EQ(with_a_tile_each(of_three, 2 * kTileValues), of_three) << "there are not so many tiles";
}

constexpr int kMembers = 4;
constexpr std::size_t kSmall = 3 * kTileValues;
constexpr std::size_t kLarge = 40 * kTileValues + 17;

/// All but a tile at member 3 for the small fragment, nothing at member 2 for the large one.
std::vector<SharesOfSize> table_of(const Codec& codec) {
  return {{encoded_bytes(codec, kSmall), {0, 1, 0, 2}},
          {encoded_bytes(codec, kLarge), {4, 3, 0, 2}}};
}

/// By member: payload sent, and the means of a small and a large fragment, both open at once.
struct Found {
  std::vector<std::vector<float>> means;
  std::uint64_t payload = 0;
};

std::vector<Found> found(const std::shared_ptr<const Codec>& codec,
                         const std::vector<SharesOfSize>& table) {
  std::vector<Found> all(kMembers);
  run_in_process(kMembers, {.retry_interval = kNothingIsLost, .table = table},
                 [&](WorkerContext& context) {
                   Found& mine = all[static_cast<std::size_t>(context.rank.value())];
                   std::vector<Ticket> tickets;
                   for (const std::size_t values : {kSmall, kLarge}) {
                     const SyncId id{FragmentId(values == kSmall ? 0 : 1), StepIndex(1)};
                     tickets.push_back(context.exchange.begin(
                         contribution_of(codec, context.rank, values, id, ReductionKind::kReduce)));
                   }
                   for (const Ticket& ticket : tickets) {
                     const auto mean = context.exchange.wait(ticket, 60s);
                     ASSERT_TRUE(mean.has_value()) << mean.error().what;
                     mine.means.push_back(mean->values);
                   }
                   mine.payload = context.exchange.bytes().payload;
                 });
  return all;
}

TEST(ShareTable, FragmentsOfUnlikeSizesGoUnlikeWaysAndNoBitChanges) {
  for (const std::string name : {"fp32", "int8", "int4:64:rounding=stochastic"}) {
    const std::shared_ptr<const Codec> codec = make_codec(name);
    const std::vector<Found> even = found(codec, {});
    const std::vector<Found> tabled = found(codec, table_of(*codec));
    for (std::size_t m = 0; m < even.size(); ++m) {
      EXPECT_EQ(tabled[m].means, even[m].means) << name << ", worker " << m;
    }
    // Its own vectors to the owners, and what it owns of each to the three others: bytes as the
    // table has them.
    const auto owned = [&](std::size_t of_small, std::size_t of_large) {
      const auto tile = static_cast<double>(encoded_bytes(*codec, kTileValues));
      return tile * static_cast<double>(2 * (of_small + of_large) + 3 + 40);
    };
    // 41 tiles in 4 : 3 : 0 : 2, the last of them cut short.
    EXPECT_NEAR(static_cast<double>(tabled[0].payload), owned(0, 18), 0.02 * owned(0, 18)) << name;
    EXPECT_NEAR(static_cast<double>(tabled[2].payload), owned(0, 0), 0.02 * owned(0, 0)) << name;
    EXPECT_NEAR(static_cast<double>(tabled[3].payload), owned(2, 9), 0.03 * owned(2, 9)) << name;
  }
}

// Who had the large share of it is gone: the others' grow, and all still cut it alike.
TEST(ShareTable, WhoIsGoneOwnsNothing) {
  const std::shared_ptr<const Codec> codec = make_codec("int8");
  for (int victim = 1; victim < kMembers; ++victim) {
    EngineNet net(kMembers, 1, {}, true, 1, 100ms, false, {}, {}, false, {}, table_of(*codec));
    const SyncId id{FragmentId(0), StepIndex(1)};
    std::vector<WorkerId> left;
    for (int m = 0; m < kMembers; ++m) {
      if (m != victim) left.emplace_back(m);
    }
    for (const WorkerId m : left) {
      net.begin(m.value(), contribution_of(codec, m, kSmall, id, ReductionKind::kReduce));
    }
    for (int i = 0; i < 3; ++i) net.advance();
    net.kill(victim);
    const auto all_ready = [&] {
      return std::ranges::all_of(left, [&](WorkerId m) { return net.engine(m.value()).ready(id); });
    };
    for (int i = 0; i < 10'000 && !all_ready() && net.advance();) ++i;
    const std::vector<float> expected =
        naive_mean(*codec, left, kSmall, ReductionKind::kReduce, id);
    for (const WorkerId m : left) {
      ASSERT_TRUE(net.engine(m.value()).ready(id)) << m.value() << " without " << victim;
      const auto result = net.engine(m.value()).take(id);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->values, expected) << m.value() << " without " << victim;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
