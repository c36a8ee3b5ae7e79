// SPDX-License-Identifier: Apache-2.0
// Links whose line follows a trace, against arithmetic: bits at the rate of each piece.
#include <gtest/gtest.h>

#include <cstdint>

#include "sim/fault_schedule.h"
#include "sim/link_queue.h"
#include "sim/topology.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMbit = 1'000'000;

TimePoint at(Duration duration) { return TimePoint(duration); }

/// 8 Mbit/s up for a second, then 1 Mbit/s for three, again and again; down it is steady.
LinkTrace two_rates() {
  return {.steps = {{seconds(0), 8e6, 2e6}, {seconds(1), 1e6, 2e6}}, .period = seconds(4)};
}

LinkQueue queue_over(const RateProfile& profile, const DirectedLink& link = {.bits_per_s = kMbit},
                     const LinkOptions& options = {}) {
  LinkQueue queue(link, options, 1, 0);
  queue.set_profile(profile);
  return queue;
}

TEST(TracedLink, ATransferOverTwoRatesEndsWhenArithmeticSays) {
  const RateProfile up = RateProfile::of_trace(two_rates(), true, Duration{0});
  // 8 Mbit in the first second and 2 of the 3 that follow.
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 1'250'000).departure, at(seconds(3)));
  // 11 Mbit in each period: 22 and one eighth of the third period's first second.
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 23'000'000 / 8).departure,
            at(seconds(8) + milliseconds(125)));
  // From the slow part into the next fast one: 1 Mbit until 4 s, 4 more in half a second.
  EXPECT_EQ(queue_over(up).send(at(seconds(3)), 5'000'000 / 8).departure,
            at(seconds(4) + milliseconds(500)));
  const RateProfile down = RateProfile::of_trace(two_rates(), false, Duration{0});
  EXPECT_EQ(queue_over(down).send(at(seconds(0)), 1'250'000).departure, at(seconds(5)));
}

TEST(TracedLink, WithoutARepeatTheLastRateStays) {
  LinkTrace trace = two_rates();
  trace.period = Duration{0};
  LinkQueue queue = queue_over(RateProfile::of_trace(trace, true, Duration{0}));
  EXPECT_EQ(queue.send(at(seconds(100)), 125'000).departure, at(seconds(101)));
}

TEST(TracedLink, ARunThatGoesOnFindsTheTraceWhereItsClockStands) {
  const RateProfile whole = RateProfile::of_trace(two_rates(), true, Duration{0});
  for (const Duration begun : {Duration(milliseconds(500)), Duration(seconds(4)),
                               Duration(seconds(1001)), Duration(milliseconds(7'999))}) {
    const RateProfile rest = RateProfile::of_trace(two_rates(), true, begun);
    for (int ms = 0; ms < 9000; ms += 37) {
      const TimePoint time = at(milliseconds(ms));
      ASSERT_EQ(rest.rate_at(time), whole.rate_at(time + begun)) << begun.count() << " " << ms;
      ASSERT_EQ(rest.next_change(time) + begun, whole.next_change(time + begun)) << ms;
    }
  }
}

// 1 ms at 10.5 kbit/s are 10 bits and a half, at 1 kbit/s one bit: none may be lost between pieces.
TEST(TracedLink, ManyShortPiecesCarryWhatTheirRatesSay) {
  const LinkTrace trace{.steps = {{Duration{0}, 10'500, 10'500}, {milliseconds(1), 1'000, 1'000}},
                        .period = milliseconds(2)};
  const RateProfile up = RateProfile::of_trace(trace, true, Duration{0});
  // 11.5 bits each 2 ms: 46 kbit take 8 s, in one frame or in many.
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 5'750).departure, at(seconds(8)));
  LinkQueue many = queue_over(up);
  TimePoint last{};
  for (int frame = 0; frame < 575; ++frame) last = many.send(at(seconds(0)), 10).departure;
  EXPECT_NEAR(static_cast<double>(last.time_since_epoch().count()), 8e9, 575 * 11);
  // Pieces that carry less than a bit.
  const LinkTrace slow{.steps = {{Duration{0}, 400, 400}, {milliseconds(1), 600, 600}},
                       .period = milliseconds(2)};
  const RateProfile crawl = RateProfile::of_trace(slow, true, Duration{0});
  EXPECT_EQ(queue_over(crawl).send(at(seconds(0)), 125).departure, at(seconds(2)));
}

// Neither do they with congestion windows: pieces of one rate are a steady line of it.
TEST(TracedLink, ManyShortPiecesOfOneRateAreASteadyLine) {
  const LinkTrace trace{.steps = {{Duration{0}, 10'500, 10'500}, {milliseconds(1), 10'500, 10'500}},
                        .period = milliseconds(2)};
  const DirectedLink link{.bits_per_s = 10'500,
                          .one_way = milliseconds(50),
                          .loss = 0.001,
                          .congestion = Congestion::kCubic};
  const LinkOptions tcp{.model = LinkModel::kTcp};
  LinkQueue queue = queue_over(RateProfile::of_trace(trace, true, Duration{0}), link, tcp);
  LinkQueue steady(link, tcp, 1, 0);
  const auto took = [](LinkQueue& over) {
    return std::chrono::duration<double>(over.send(at(seconds(0)), 100'000).departure - TimePoint{})
        .count();
  };
  EXPECT_NEAR(took(queue) / took(steady), 1, 0.005);
}

TEST(TracedLink, TheLowestRateIsNoLineWithoutALimit) {
  for (const LinkModel model : {LinkModel::kPlain, LinkModel::kTcp}) {
    LinkQueue queue({.bits_per_s = 1}, {.model = model}, 1, 0);
    EXPECT_EQ(queue.send(at(seconds(0)), 1).departure, at(seconds(8)));
    const LinkTrace trace{.steps = {{Duration{0}, 1, 1}, {seconds(3), 2, 2}},
                          .period = Duration{0}};
    const TimePoint left = queue_over(RateProfile::of_trace(trace, true, Duration{0}),
                                      {.bits_per_s = 2}, {.model = model})
                               .send(at(seconds(0)), 1)
                               .departure;
    EXPECT_EQ(left, at(model == LinkModel::kPlain ? milliseconds(5'500) : milliseconds(8'000)));
  }
}

// What the line carries besides values is a share of it, and lost packets bound what TCP makes of a
// fast line, not of a slow one: with this round trip and loss Mathis gives 4.47 Mbit/s, between the
// two rates.
TEST(TracedLink, EachRateGivesWhatASteadyLineOfItWould) {
  for (const Congestion congestion : {Congestion::kBbr, Congestion::kCubic}) {
    const DirectedLink link{.bits_per_s = 8 * kMbit,
                            .one_way = milliseconds(50),
                            .loss = 0.001,
                            .congestion = congestion};
    const auto mathis = static_cast<double>(mathis_bits_per_s(link.rtt(), link.loss));
    ASSERT_TRUE(2.0 * kMbit < mathis && mathis < 6.0 * kMbit) << mathis;
    LinkTrace trace = two_rates();
    LinkQueue traced = queue_over(RateProfile::of_trace(trace, true, Duration{0}), link);
    for (const std::int64_t rate : {8 * kMbit, kMbit}) {
      DirectedLink line = link;
      line.bits_per_s = rate;
      LinkQueue steady(line, {}, 1, 0);
      const TimePoint begin = at(rate == kMbit ? seconds(1) : seconds(0));
      const TimePoint departure = traced.send(begin, 100'000).departure;
      EXPECT_EQ(departure, steady.send(begin, 100'000).departure) << rate;
      const bool bounded = congestion == Congestion::kCubic && rate == 8 * kMbit;
      const double given = bounded ? mathis : static_cast<double>(rate);
      EXPECT_NEAR(static_cast<double>((departure - begin).count()), 8e5 / given * 1e9, 1) << rate;
    }
  }
}

TEST(TracedLink, AFaultHoldsInThePlaceOfTheTraceAndThenTheTraceAgain) {
  const std::vector<std::string> sites = {"a", "b"};
  const std::map<std::pair<int, int>, RateProfile> traces = {
      {{0, 1}, RateProfile::of_trace(two_rates(), true, Duration{0})}};
  const FaultConfig cut{.kind = "cut",
                        .a = "a",
                        .b = "b",
                        .site = "",
                        .at = milliseconds(500),
                        .lasts = milliseconds(5'000)};
  const std::vector<DirectedLink> links(4, DirectedLink{.bits_per_s = 3 * kMbit});
  const auto rates = fault_rates({cut}, links, sites, Duration{0}, traces);
  const RateProfile& up = rates.at({0, 1});
  // 4 Mbit until the cut; after it, at 5.5 s, the slow part until 8 s, then 8 Mbit/s.
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 4'000'000 / 8).departure, at(milliseconds(500)));
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 5'000'000 / 8).departure, at(milliseconds(6'500)));
  EXPECT_EQ(queue_over(up).send(at(seconds(0)), 10'500'000 / 8).departure,
            at(seconds(8) + milliseconds(500)));
  EXPECT_EQ(rates.at({1, 0}).rate_at(at(seconds(6))), 3 * kMbit) << "which has no trace";
}

TEST(TracedLink, LinksOfTheSimulationHaveTheHighestRateOfTheirTrace) {
  const std::vector<DirectedLink> links(4, DirectedLink{.bits_per_s = 3 * kMbit});
  const auto at_highest =
      at_highest_rates(links, {{{0, 1}, RateProfile::of_trace(two_rates(), true, Duration{0})}}, 2);
  EXPECT_EQ(at_highest[1].bits_per_s, 8 * kMbit);
  EXPECT_EQ(at_highest[2].bits_per_s, 3 * kMbit);
}

}  // namespace
}  // namespace isthmus::this_file
