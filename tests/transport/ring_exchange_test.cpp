// SPDX-License-Identifier: Apache-2.0
// Rings, against the sum written out by hand, on every transport.
#include "transport/exchange/ring/ring_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "conformance_worlds.h"
#include "naive_mean.h"

namespace isthmus::testing_support::this_file {
namespace {

using std::chrono::seconds;
using testing_support::contribution_of;
using testing_support::test_vector;
using testing_support::through;

constexpr SyncId kRound{FragmentId(0), StepIndex(1)};

std::vector<float> plus(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] + b[i];
  return a;
}

/// What member `rank` contributes, through the codec.
std::vector<float> own(const Codec& codec, int rank, std::size_t n, const SyncId& id) {
  return through(codec, test_vector(WorkerId(rank), n),
                 encode_key(id, static_cast<std::uint32_t>(rank)));
}

std::vector<float> passed(const Codec& codec, int rank, const std::vector<float>& sum,
                          const SyncId& id) {
  return through(codec, sum, encode_key(id, kMeanWorker - 1 - static_cast<std::uint32_t>(rank)));
}

std::vector<float> finished(const Codec& codec, std::vector<float> sum, int members,
                            const SyncId& id) {
  for (float& value : sum) value /= static_cast<float>(members);
  return through(codec, sum, encode_key(id, kMeanWorker));
}

/// Section j of a ring: the sum starts at the root's successor and ends at the root, which is the
/// member j. `order` closes the ring.
std::vector<float> naive_ring(const Codec& codec, std::size_t n, const std::vector<int>& order,
                              const SyncId& id) {
  const auto members = order.size();
  const std::size_t tiles = (n + kTileValues - 1) / kTileValues;
  std::vector<float> mean(n);
  for (std::size_t at = 0; at < members; ++at) {
    std::vector<float> sum = own(codec, order[(at + 1) % members], n, id);
    for (std::size_t hop = 2; hop <= members; ++hop) {
      const int here = order[(at + hop) % members];
      sum = plus(sum, own(codec, here, n, id));
      if (hop < members) sum = passed(codec, here, sum, id);
    }
    const std::vector<float> whole = finished(codec, sum, static_cast<int>(members), id);
    const auto root = static_cast<std::size_t>(order[at]);
    const std::size_t begin = std::min(n, tiles * root / members * kTileValues);
    const std::size_t end = std::min(n, tiles * (root + 1) / members * kTileValues);
    std::copy(whole.begin() + static_cast<std::ptrdiff_t>(begin),
              whole.begin() + static_cast<std::ptrdiff_t>(end),
              mean.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return mean;
}

std::vector<float> naive(const Codec& codec, std::size_t n, int members, std::vector<int> order,
                         const SyncId& id = kRound) {
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(members));
    std::iota(order.begin(), order.end(), 0);
  }
  return naive_ring(codec, n, order, id);
}

class RingExchangeTest : public ::testing::TestWithParam<WorldKind> {
 protected:
  void SetUp() override {
    if (!GetParam().absent.empty()) GTEST_SKIP() << GetParam().absent;
  }
  /// Runs `body` as each member, over exchanges along `order`.
  void run(int members, const std::vector<int>& order,
           const std::function<void(RingExchange&, Transport&)>& body) {
    const std::unique_ptr<World> world = GetParam().make();
    world->run([&] {
      std::vector<std::unique_ptr<Transport>> ends = world->endpoints(members);
      std::vector<std::unique_ptr<Task>> tasks;
      for (const auto& end : ends) {
        tasks.push_back(world->runtime().spawn("member", [&] {
          RingExchange exchange(*end, world->runtime(), order);
          body(exchange, *end);
        }));
      }
      for (const auto& task : tasks) task->join();
    });
  }
};

TEST_P(RingExchangeTest, AllHoldTheBitsOfTheSumByHand) {
  struct Case {
    std::vector<int> order;
    int members;
  };
  const std::vector<Case> cases = {{{}, 2}, {{}, 3}, {{}, 6}, {{2, 0, 3, 4, 1}, 5}};
  for (const Case& each : cases) {
    run(each.members, each.order, [&](RingExchange& exchange, Transport&) {
      int step = 0;
      for (const std::string spelling : {"fp32", "int8", "int4:64:rounding=stochastic", "bf16"}) {
        const std::shared_ptr<const Codec> codec = make_codec(spelling);
        for (const std::size_t n : {std::size_t{12 * kTileValues + 17}, std::size_t{5}}) {
          const SyncId id{FragmentId(0), StepIndex(++step)};
          const auto mean =
              exchange.wait(exchange.begin(contribution_of(codec, exchange.self(), n, id,
                                                           ReductionKind::kReduce)),
                            seconds(60));
          ASSERT_TRUE(mean) << mean.error().what;
          EXPECT_EQ(mean->values, naive(*codec, n, each.members, each.order, id))
              << spelling << ", " << each.members << " members";
        }
      }
    });
  }
}

// Some begin the next round while others still wait for the first; nobody waits for a commit.
TEST_P(RingExchangeTest, RoundsFollowOneAnotherWithoutACommit) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr std::size_t kValues = 3 * kTileValues;
  run(4, {1, 3, 2, 0}, [&](RingExchange& exchange, Transport&) {
    for (int step = 1; step <= 20; ++step) {
      const SyncId id{FragmentId(0), StepIndex(step)};
      Contribution mine =
          contribution_of(codec, exchange.self(), kValues, id, ReductionKind::kReduce);
      mine.commit = step == 20;
      const auto mean = exchange.wait(exchange.begin(std::move(mine)), seconds(60));
      ASSERT_TRUE(mean) << mean.error().what;
      EXPECT_EQ(mean->values, naive(*codec, kValues, 4, {1, 3, 2, 0}));
    }
  });
}

TEST_P(RingExchangeTest, WhoWaitsForAMemberThatIsGoneIsTold) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  run(3, {}, [&](RingExchange& exchange, Transport& transport) {
    if (exchange.self() == WorkerId(1)) return transport.close();
    const auto mean =
        exchange.wait(exchange.begin(contribution_of(codec, exchange.self(), 9 * kTileValues,
                                                     kRound, ReductionKind::kReduce)),
                      seconds(60));
    ASSERT_FALSE(mean);
    EXPECT_EQ(mean.error().kind, ExchangeError::Kind::kPeerLost);
  });
}

TEST_P(RingExchangeTest, FramesThatDoNotBelongHereEndTheRound) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  run(2, {}, [&](RingExchange& exchange, Transport& transport) {
    const auto contribution =
        contribution_of(codec, exchange.self(), 4 * kTileValues, kRound, ReductionKind::kReduce);
    if (exchange.self() == WorkerId(1)) {  // a part of another ring
      const RingPlan plan = make_ring_plan(*codec, 4 * kTileValues, 2, {1, 0});
      transport.send(
          WorkerId(0),
          make_frame({.kind = FrameKind::kContribution, .id = kRound, .layout = plan.cut.layout}));
      const auto gone = transport.receive(kNever);  // what the other sends, or its end
      return static_cast<void>(gone);
    }
    const auto mean = exchange.wait(exchange.begin(contribution), seconds(60));
    ASSERT_FALSE(mean);
    EXPECT_EQ(mean.error().kind, ExchangeError::Kind::kCorrupt);
    EXPECT_THAT(mean.error().what, ::testing::HasSubstr("another cut"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, RingExchangeTest, ::testing::ValuesIn(all_transport_worlds()),
                         [](const auto& world) { return world.param.name; });

TEST(RingPlanTest, EachMemberSendsToItsSuccessorAlone) {
  const RingPlan plan = make_ring_plan(*make_codec("int8"), 40 * kTileValues, 4, {0, 2, 1, 3});
  const std::vector<int> next = {2, 3, 1, 0};
  EXPECT_EQ(plan.next, next);
  for (int m = 0; m < 4; ++m) EXPECT_EQ(plan.before_of(plan.next_of(m)), m);
  for (std::size_t part = 0; part < plan.cut.parts.size(); ++part) {
    for (int m = 0; m < 4; ++m) {
      EXPECT_EQ(plan.begins_sum(part, m), plan.next_of(plan.root(part)) == m);
      EXPECT_EQ(plan.passes_mean(part, m), plan.next_of(m) != plan.root(part));
    }
  }
}

// int8 loses half of a 127th of the largest value of a block. The bound of ring_plan.h, worked out
// hop by hop with what has been lost before; a ring of 12 loses more than the exchange of runs may.
TEST(RingPlanTest, ARingLosesNoMoreThanItsBoundAndMoreThanOneEncodingOfTheMean) {
  constexpr int kMembers = 12;
  constexpr std::size_t kValues = 24 * kTileValues;
  constexpr double kHalfStep = 0.5 / 127;
  const std::unique_ptr<const Codec> codec = make_codec("int8");
  std::vector<double> exact(kValues);
  double largest = 0;
  for (int m = 0; m < kMembers; ++m) {
    const std::vector<float> x = test_vector(WorkerId(m), kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      exact[i] += static_cast<double>(x[i]) / kMembers;
      largest = std::max(largest, static_cast<double>(std::abs(x[i])));
    }
  }
  const auto worst = [&](const std::vector<float>& mean) {
    double most = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      most = std::max(most, std::abs(static_cast<double>(mean[i]) - exact[i]));
    }
    return most;
  };
  const auto lost = [&](double summands, double before) {
    return before + kHalfStep * (summands * largest + before);
  };
  const double one = lost(1, 0);
  double ring = one;
  for (int summands = 2; summands < kMembers; ++summands) ring = lost(summands, ring + one);
  ring = lost(1, (ring + one) / kMembers);
  const double runs = lost(1, one);
  constexpr double kRoundingOfSums = 1e-5;
  const double of_ring = worst(naive(*codec, kValues, kMembers, {}));
  EXPECT_LE(of_ring, ring + kRoundingOfSums);
  EXPECT_NEAR(ring / (kHalfStep * largest), 2 + (kMembers - 1) / 2.0 - 1.0 / kMembers, 0.2)
      << "ring_plan.h";
  EXPECT_GT(of_ring, runs);
  EXPECT_LE(worst(testing_support::naive_mean(*codec, kMembers, kValues, ReductionKind::kReduce)),
            runs + kRoundingOfSums);
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
