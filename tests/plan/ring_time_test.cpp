// SPDX-License-Identifier: Apache-2.0
// How long a mean along a ring takes: the closed form, the prediction, and the exchange itself in
// virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <vector>

#include "plan/exchange_ways.h"
#include "sim/network.h"
#include "sim/run_simulated.h"
#include "transport/exchange/ring/ring_exchange.h"
#include "transport/naive_mean.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr std::int64_t kRate = 80'000'000;            // bit/s
constexpr std::size_t kPartValues = 2 * kTileValues;  // 32 KiB of fp32, the smallest part
constexpr double kPart = (4.0 * kPartValues + kFrameOverheadBytes) * 8 / kRate;  // s on a link

constexpr double kBarrier = 100;  // bytes of a DONE or COMMIT frame, at most

struct Timed {
  double seconds = 0;
  std::vector<std::vector<std::uint64_t>> traffic;
};

Timed simulated(const std::vector<DirectedLink>& links, int members, std::size_t n,
                const std::vector<int>& order, bool commit, LinkModel model = LinkModel::kPlain) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  SimulationOptions options{
      .workers = members, .links = links, .network = {.link = {.model = model}}};
  options.make_exchange = [&](Transport& transport, Runtime& runtime) {
    return std::make_unique<RingExchange>(transport, runtime, order);
  };
  Timed timed;
  const auto round = [&](WorkerContext& context, int step, std::size_t values, bool commits) {
    const SyncId id{FragmentId(0), StepIndex(step)};
    Contribution mine =
        testing_support::contribution_of(codec, context.rank, values, id, ReductionKind::kReduce);
    mine.commit = commits;
    const auto mean =
        context.exchange.wait(context.exchange.begin(std::move(mine)), std::chrono::hours(9));
    ASSERT_TRUE(mean) << mean.error().what;
  };
  const SimulationResult result = run_simulated(options, [&](WorkerContext& context) {
    round(context, 1, n, commit);
    const TimePoint now = context.runtime.clock().now();
    timed.seconds =
        std::max(timed.seconds, std::chrono::duration<double>(now.time_since_epoch()).count());
    round(context, 2, 0, true);  // so that nobody leaves before all are through
  });
  timed.traffic = result.traffic;
  return timed;
}

std::vector<DirectedLink> equal_links(int members, Duration one_way) {
  return uniform_links(members, {.bits_per_s = kRate, .one_way = one_way});
}

// A step of the ring sends a section of P parts, S = P x seconds of x each, and a part of the next
// step can go a part and a delay d after the one that it follows:
//   T = (2 M - 3) max(S, x + d) + S + d.
// Where sections are long the link never rests, T = 2 (M - 1) S + d: one delay. Where a section is
// one part, T = 2 (M - 1) (S + d), the ring without a pipeline.
TEST(RingTime, ARingTakesItsClosedForm) {
  for (const int members : {2, 3, 4, 7}) {
    for (const int parts : {1, 4, 40}) {
      for (const Duration one_way :
           {Duration(0), Duration(milliseconds(2)), Duration(milliseconds(50))}) {
        const double d = std::chrono::duration<double>(one_way).count();
        const double section = parts * kPart;
        const double want = (2 * members - 3) * std::max(section, kPart + d) + section + d;
        const Timed timed =
            simulated(equal_links(members, one_way), members,
                      static_cast<std::size_t>(members * parts) * kPartValues, {}, false);
        EXPECT_NEAR(timed.seconds, want, 1e-5 * want)
            << members << " members, " << parts << " parts, " << d << " s";
        const double vector = members * section * kRate / 8;  // bytes with headers
        for (std::size_t m = 0; m < timed.traffic.size(); ++m) {
          for (std::size_t to = 0; to < timed.traffic.size(); ++to) {
            const bool next = to == (m + 1) % timed.traffic.size();
            EXPECT_NEAR(static_cast<double>(timed.traffic[m][to]),
                        next ? 2.0 * (members - 1) / members * vector : 0, kBarrier);
          }
        }
      }
    }
  }
}

// One line four times slower, M = 4: the ring sends 2 (M - 1) / M vectors over it, 1.5 V / b, a
// reduce in which the slow one owns nothing its own vector, V / b.
TEST(RingTime, OneSlowLineCostsTheBestRingHalfAsMuchAgainAsTheOthersShares) {
  std::vector<DirectedLink> links = equal_links(4, milliseconds(1));
  for (std::size_t m = 0; m < 4; ++m) {
    links[3 * 4 + m].bits_per_s = kRate / 4;
    links[m * 4 + 3].bits_per_s = kRate / 4;
  }
  constexpr std::size_t kValues = 120 * kPartValues;
  const Timed ring = simulated(links, 4, kValues, ring_by_links(links, 4), false);
  const double vector_s = 120 * kPart * 4;  // over the slow line
  EXPECT_NEAR(ring.seconds, 1.5 * vector_s, 0.01 * vector_s);
  EXPECT_NEAR(least_on_shared_lines(links, ring.traffic), 1.5 * vector_s, 1e-4);

  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SimulationResult shares = run_simulated(
      {.workers = 4,
       .links = links,
       .exchange = {.retry_interval = kNothingIsLost, .shares = shares_by_links(links, 4)}},
      [&](WorkerContext& context) {
        const auto mean =
            context.exchange.wait(context.exchange.begin(testing_support::contribution_of(
                                      codec, context.rank, kValues, {FragmentId(0), StepIndex(1)},
                                      ReductionKind::kReduce)),
                                  std::chrono::hours(9));
        ASSERT_TRUE(mean) << mean.error().what;
      });
  EXPECT_NEAR(least_on_shared_lines(links, shares.traffic), vector_s, 0.01 * vector_s);
}

TEST(RingTime, ThePredictionIsWhatTheExchangeTakes) {
  std::vector<DirectedLink> links;
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      links.push_back({.bits_per_s = (1 + (from * 3 + to * 7) % 5) * kRate / 10,
                       .one_way = milliseconds(1 + (from * 11 + to * 5) % 40)});
    }
  }
  constexpr std::size_t kValues = 90 * kPartValues + 77;
  for (const LinkModel model : {LinkModel::kPlain, LinkModel::kTcp}) {
    PredictionInput input{.workers = 5, .links = links, .link = {.model = model}};
    for (const std::vector<int>& order : {std::vector<int>(), ring_by_links(links, 5)}) {
      const double measured = simulated(links, 5, kValues, order, true, model).seconds;
      const double predicted =
          predict_round_along(input, make_ring_plan(*make_codec("fp32"), kValues, 5, order));
      EXPECT_NEAR(predicted, measured, 0.03 * measured);
    }
  }
}

TEST(RingByLinks, KeepsItsSlowestLinkFast) {
  std::vector<DirectedLink> links = equal_links(5, milliseconds(9));
  const std::vector<int> fast = {0, 3, 1, 4, 2};
  for (std::size_t i = 0; i < 5; ++i) {
    const auto from = static_cast<std::size_t>(fast[i]);
    links[from * 5 + static_cast<std::size_t>(fast[(i + 1) % 5])].bits_per_s = 2 * kRate;
  }
  EXPECT_THAT(ring_by_links(links, 5), ElementsAre(0, 3, 1, 4, 2));
}

TEST(RingByLinks, IsShortWhereRatesAreAlike) {
  std::vector<DirectedLink> links = equal_links(4, milliseconds(30));
  const std::vector<int> near = {0, 2, 1, 3};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto from = static_cast<std::size_t>(near[i]);
    links[from * 4 + static_cast<std::size_t>(near[(i + 1) % 4])].one_way = milliseconds(5);
  }
  EXPECT_THAT(ring_by_links(links, 4), ElementsAre(0, 2, 1, 3));
}

TEST(RingByLinks, OfManyMembersFollowsFastLinks) {
  constexpr int kMany = 12;
  std::vector<DirectedLink> links = equal_links(kMany, milliseconds(9));
  for (std::size_t m = 0; m < kMany; ++m) {
    links[m * kMany + (m + 5) % kMany].bits_per_s = 3 * kRate;
  }
  EXPECT_THAT(ring_by_links(links, kMany), ElementsAre(0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7));
}

}  // namespace
}  // namespace isthmus::this_file
