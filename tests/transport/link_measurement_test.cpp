// SPDX-License-Identifier: Apache-2.0
// The arithmetic of measurements against closed forms.
#include "transport/links/probe/link_measurement.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "transport/links/probe/link_probe.h"
#include "transport/links/probe/link_survey.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TimePoint at_ms(std::int64_t ms) { return TimePoint(milliseconds(ms)); }

TEST(LinkMeasurement, QuantilesAreTheNearestRanks) {
  std::vector<Duration> samples(100);
  for (int i = 0; i < 100; ++i) samples[static_cast<std::size_t>(i)] = milliseconds(100 - i);
  EXPECT_EQ(quantile(samples, 0.5), milliseconds(50));
  EXPECT_EQ(quantile(samples, 0.99), milliseconds(99));
  EXPECT_EQ(quantile(samples, 1.0), milliseconds(100));
  EXPECT_EQ(quantile(std::vector<Duration>{milliseconds(7)}, 0.01), milliseconds(7));
}

TEST(LinkMeasurement, JitterOfTwoUniformDelaysIsFoundWhateverTheRoundTrip) {
  // 20,000 samples: each quantile is known to about half a percent of the jitter.
  constexpr double kTolerance = 0.03;
  const Rng rng(1, Stream::kTestData);
  for (const double jitter_ms : {0.5, 10.0}) {
    std::vector<Duration> samples;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const double late = jitter_ms * (rng.uniform(i) + rng.uniform(i, 1));
      samples.push_back(milliseconds(30) + nanoseconds(std::llround(1e6 * late)));
    }
    const EchoSummary echo = summarise_echoes(samples);
    EXPECT_NEAR(static_cast<double>(echo.jitter.count()) / 1e6, jitter_ms, kTolerance * jitter_ms);
    EXPECT_NEAR(static_cast<double>(echo.p50.count()) / 1e6, 30 + jitter_ms,
                kTolerance * jitter_ms);
  }
}

TEST(LinkMeasurement, RareOutliersAreNoJitter) {
  std::vector<Duration> samples(100, milliseconds(20));
  for (std::size_t i = 0; i < 5; ++i) samples[i] = milliseconds(500);
  const EchoSummary echo = summarise_echoes(samples);
  EXPECT_EQ(echo.jitter, Duration{0});
  EXPECT_EQ(echo.p99, milliseconds(500));
  EXPECT_EQ(echo.least, milliseconds(20));
}

TEST(LinkMeasurement, ASteadyArrivalGivesItsRateExactly) {
  ArrivalSeries series;
  for (int i = 0; i <= 100; ++i) series.add(at_ms(1000 + 10 * i), 12'500);  // 10 Mbit/s
  const Arrivals arrivals = series.summary();
  EXPECT_EQ(arrivals.bytes, 101u * 12'500u);
  EXPECT_EQ(arrivals.elapsed, milliseconds(1000));
  EXPECT_DOUBLE_EQ(steady_rate(arrivals).value(), 1e7);
}

TEST(LinkMeasurement, ASlowStartDoesNotCount) {
  ArrivalSeries series;
  int ms = 0;
  for (int i = 0; i < 10; ++i) series.add(at_ms(ms += 40), 1000);     // 0.2 Mbit/s
  for (int i = 0; i < 1000; ++i) series.add(at_ms(ms += 1), 12'500);  // 100 Mbit/s
  EXPECT_DOUBLE_EQ(steady_rate(series.summary()).value(), 1e8);
}

TEST(LinkMeasurement, AMillionArrivalsKeepTheRateInBoundedMemory) {
  ArrivalSeries series;
  constexpr int kArrivals = 1'000'000;
  for (int i = 0; i < kArrivals; ++i) series.add(TimePoint(nanoseconds(1000 * i)), 125);
  const Arrivals arrivals = series.summary();
  EXPECT_EQ(arrivals.bytes, 125u * kArrivals);
  EXPECT_NEAR(steady_rate(arrivals).value(), 1e9, 1e6);
}

TEST(LinkMeasurement, WhatCameAtOnceHasNoRate) {
  ArrivalSeries series;
  EXPECT_FALSE(steady_rate(series.summary()).has_value());
  series.add(at_ms(5), 1000);
  EXPECT_FALSE(steady_rate(series.summary()).has_value());
  series.add(at_ms(5), 1000);
  EXPECT_FALSE(steady_rate(series.summary()).has_value());
}

TEST(LinkMeasurement, StreamsAreTheFewestThatReachNineTenthsOfTheBest) {
  EXPECT_EQ(enough_streams(std::vector<StreamRate>{{1, 5}, {2, 40}, {4, 91}, {8, 100}, {16, 99}}),
            4u);
  EXPECT_EQ(enough_streams(std::vector<StreamRate>{{1, 100}, {2, 95}, {16, 60}}), 1u);
  EXPECT_EQ(enough_streams(std::vector<StreamRate>{{1, 10}, {16, 89}, {8, 80}}), 16u);
  EXPECT_THAT(streams_to_try(1), ElementsAre(1u));
  EXPECT_THAT(streams_to_try(12), ElementsAre(1u, 2u, 4u, 8u, 12u));
  EXPECT_THAT(streams_to_try(16), ElementsAre(1u, 2u, 4u, 8u, 16u));
}

TEST(LinkMeasurement, StreamsAreAddedUntilTwoNumbersWereInVain) {
  const auto helps = [](std::vector<StreamRate> rates) { return more_streams_may_help(rates); };
  EXPECT_TRUE(helps({}));
  EXPECT_TRUE(helps({{1, 100}}));
  EXPECT_TRUE(helps({{1, 100}, {2, 105}}));
  EXPECT_FALSE(helps({{1, 100}, {2, 105}, {4, 110}}));
  EXPECT_TRUE(helps({{1, 100}, {2, 90}, {4, 120}}));
  EXPECT_TRUE(helps({{1, 5}, {2, 10}, {4, 20}, {8, 40}, {16, 60}}));
  EXPECT_FALSE(helps({{1, 5}, {2, 10}, {4, 10}, {8, 10}}));
}

TEST(LinkMeasurement, NumbersThatCannotBeAreNamed) {
  EchoSummary echo{.samples = 3,
                   .least = milliseconds(1),
                   .p50 = milliseconds(2),
                   .p99 = milliseconds(3),
                   .jitter = milliseconds(1)};
  EXPECT_EQ(fault_of(echo), "");
  echo.least = milliseconds(-1);
  EXPECT_THAT(fault_of(echo), HasSubstr("-1000000"));
  echo.least = milliseconds(5);
  EXPECT_NE(fault_of(echo), "");
  DirectionMeasurement direction;
  direction.bits_per_s = 1e8;
  EXPECT_EQ(fault_of(direction), "");
  for (const double rate : {0.0, -1.0, 0.5, 1e15, 1e16, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    direction.bits_per_s = rate;
    EXPECT_THAT(fault_of(direction), HasSubstr("bit/s")) << rate;
  }
  direction.bits_per_s = 1e8;
  direction.retransmits = Retransmits{.segments = 5, .repeated = 6};
  EXPECT_THAT(fault_of(direction), HasSubstr("6 of 5"));
  direction.retransmits.reset();
  direction.congestion = "x\"y";
  EXPECT_NE(fault_of(direction), "");
}

TEST(LinkMeasurement, AReportIsHeldAgainstWhatTheSenderKnows) {
  const Arrivals good{
      .bytes = 100, .elapsed = milliseconds(10), .steady_bytes = 60, .steady = milliseconds(5)};
  EXPECT_EQ(fault_of(good, 100, milliseconds(12)), "");
  EXPECT_NE(fault_of(good, 101, milliseconds(12)), "");
  EXPECT_NE(fault_of(good, 100, milliseconds(8)), "") << "longer than it took here";
  Arrivals bad = good;
  bad.steady = milliseconds(11);
  EXPECT_NE(fault_of(bad, 100, milliseconds(12)), "");
  bad = good;
  bad.elapsed = Duration(-1);
  EXPECT_NE(fault_of(bad, 100, milliseconds(12)), "");
  bad = good;
  bad.steady_bytes = 101;
  EXPECT_NE(fault_of(bad, 100, milliseconds(12)), "");
  bad = good;
  bad.bytes = bad.steady_bytes = 1'000'000;
  bad.steady = Duration(1);
  EXPECT_THAT(fault_of(bad, 1'000'000, milliseconds(12)), HasSubstr("8e+15 bit/s"));
  bad = {.bytes = 1, .elapsed = seconds(20), .steady_bytes = 1, .steady = seconds(10)};
  EXPECT_THAT(fault_of(bad, 1, seconds(21)), HasSubstr("0.8 bit/s"));
}

TEST(LinkSurvey, EveryPairComesOnceAndOneAtATime) {
  for (int members = 0; members <= 17; ++members) {
    const auto pairs = survey_pairs(members);
    std::vector<int> met(static_cast<std::size_t>(members * members));
    for (const auto& [a, b] : pairs) {
      ASSERT_LT(a, b);
      ASSERT_GE(a.value(), 0);
      ASSERT_LT(b.value(), members);
      ++met[static_cast<std::size_t>(a.value() * members + b.value())];
    }
    EXPECT_EQ(pairs.size(), static_cast<std::size_t>(members * std::max(0, members - 1) / 2));
    EXPECT_EQ(std::accumulate(met.begin(), met.end(), 0), static_cast<int>(pairs.size()));
    EXPECT_TRUE(std::ranges::all_of(met, [](int n) { return n <= 1; })) << members;
  }
}

TEST(LinkSurvey, ItsTimeIsSaidBefore) {
  const ProbePlan plan{.budget = std::chrono::seconds(3), .streams = 4};
  EXPECT_EQ(survey_time(1, plan), Duration{0});
  EXPECT_GE(survey_time(2, plan), std::chrono::seconds(6));
  EXPECT_EQ(survey_time(4, plan), 6 * survey_time(2, plan));
}

}  // namespace
}  // namespace isthmus::this_file
