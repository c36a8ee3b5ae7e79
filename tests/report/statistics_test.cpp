// SPDX-License-Identifier: Apache-2.0
// The statistics against closed forms, published examples and their own promises: over many drawn
// experiments errors are as rare, and finds as frequent, as the functions say.
#include "report/data/statistics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/rng.h"

namespace isthmus::report::this_file {
namespace {

constexpr double kPi = std::numbers::pi;

TEST(StudentT, AgreesWithTheClosedFormsOfSmallFreedom) {
  for (const double t : {-40.0, -3.0, -0.5, 0.0, 0.1, 1.0, 2.5, 12.0}) {
    EXPECT_NEAR(student_t_cdf(t, 1), 0.5 + std::atan(t) / kPi, 1e-14) << t;
    EXPECT_NEAR(student_t_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14) << t;
    const double x = t / std::sqrt(3.0);
    EXPECT_NEAR(student_t_cdf(t, 3), 0.5 + (x / (1 + x * x) + std::atan(x)) / kPi, 1e-14) << t;
  }
}

// An independent way to the same number: the density, integrated by Simpson's rule.
TEST(StudentT, IsTheIntegralOfItsDensity) {
  for (const double freedom : {5.0, 7.0, 11.0, 30.0}) {
    const double scale = std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) /
                         std::sqrt(freedom * kPi);
    const auto density = [&](double t) {
      return scale * std::pow(1 + t * t / freedom, -(freedom + 1) / 2);
    };
    constexpr int kPieces = 2000;
    constexpr double kEnd = 3;
    double sum = density(0) + density(kEnd);
    for (int i = 1; i < kPieces; ++i) {
      sum += (i % 2 == 1 ? 4 : 2) * density(kEnd * i / kPieces);
    }
    EXPECT_NEAR(student_t_cdf(kEnd, freedom), 0.5 + sum * kEnd / kPieces / 3, 1e-12) << freedom;
  }
}

// Two-sided 95 % and one-sided 95 % points as every printed table has them.
TEST(StudentT, QuantilesAreThoseOfThePrintedTables) {
  struct Row {
    double freedom, t975, t95;
  };
  for (const Row& row : {Row{1, 12.706, 6.314}, Row{2, 4.303, 2.920}, Row{4, 2.776, 2.132},
                         Row{7, 2.365, 1.895}, Row{11, 2.201, 1.796}, Row{30, 2.042, 1.697}}) {
    EXPECT_NEAR(student_t_quantile(0.975, row.freedom), row.t975, 5e-4) << row.freedom;
    EXPECT_NEAR(student_t_quantile(0.95, row.freedom), row.t95, 5e-4) << row.freedom;
    EXPECT_NEAR(student_t_cdf(student_t_quantile(0.1, row.freedom), row.freedom), 0.1, 1e-12);
  }
}

// Gosset's sleep data (Student 1908; R's data set `sleep`): t = 4.0621, p = 0.002833, interval
// 0.7001142 to 2.4598858.
TEST(Paired, GossetsSleepDataGivesThePublishedResult) {
  constexpr std::array<double, 10> kHours = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const Spread spread = spread_of(kHours);
  EXPECT_NEAR(spread.mean, 1.58, 1e-12);
  EXPECT_NEAR(spread.mean / (spread.deviation / std::sqrt(10.0)), 4.0621, 5e-5);
  EXPECT_NEAR(no_difference_p(spread), 0.002833, 5e-7);
  const Interval interval = mean_interval(spread, 0.95);
  EXPECT_NEAR(interval.low, 0.7001142, 5e-8);
  EXPECT_NEAR(interval.high, 2.4598858, 5e-8);
}

// G*Power's manual (one-sample t test, d = 0.5, two-sided 5 %): 34 pairs give a power of 0.8077775,
// 54 give 0.9502120.
TEST(Power, IsThatOfThePublishedSampleSizes) {
  EXPECT_NEAR(detection_power(0.5, 1, 34, 0.05), 0.8077775, 5e-7);
  EXPECT_NEAR(detection_power(0.5, 1, 54, 0.05), 0.9502120, 5e-7);
  EXPECT_NEAR(detection_power(0, 1, 8, 0.05), 0.05, 1e-9);  // nothing there: the false alarms
}

TEST(Power, TheDetectableDifferenceIsFoundWithThatPower) {
  for (const int n : {2, 3, 6, 8, 12, 40}) {
    for (const double level : {0.05, 0.05 / 9}) {
      const double difference = detectable_difference(0.007, n, level, 0.8);
      EXPECT_NEAR(detection_power(difference, 0.007, n, level), 0.8, 1e-9) << n << " " << level;
    }
  }
  EXPECT_TRUE(std::isinf(detectable_difference(0.007, 1, 0.05, 0.8)));
  EXPECT_EQ(detectable_difference(0, 8, 0.05, 0.8), 0);
}

// Two one-sided tests at 5 % pass exactly when the 90 % interval lies within the margin.
TEST(Equivalence, PassesWhenTheIntervalLiesWithinTheMargin) {
  const Rng rng(1, Stream::kTestData);
  int inside = 0;
  for (std::uint32_t draw = 0; draw < 500; ++draw) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < 8; ++i) {
      values.push_back(0.3 + rng.normal(i, draw));
    }
    const Spread spread = spread_of(values);
    const Interval interval = mean_interval(spread, 0.90);
    const bool within = interval.low > -1 && interval.high < 1;
    EXPECT_EQ(equivalence_p(spread, 1) < 0.05, within) << draw;
    inside += within ? 1 : 0;
  }
  EXPECT_GT(inside, 100);
  EXPECT_LT(inside, 450);
}

TEST(Paired, TooFewValuesSayNothing) {
  for (const std::vector<double>& values : {std::vector<double>{}, std::vector<double>{0.1}}) {
    const Spread spread = spread_of(values);
    EXPECT_EQ(no_difference_p(spread), 1);
    EXPECT_EQ(equivalence_p(spread, 10), 1);
    EXPECT_TRUE(mean_interval(spread, 0.95).holds(1e300));
    EXPECT_EQ(detection_power(1, 1, spread.n, 0.05), 0);
  }
}

TEST(Paired, ValuesWithoutSpreadAreTakenAtTheirWord) {
  const Spread same = spread_of(std::array<double, 4>{0, 0, 0, 0});
  EXPECT_EQ(no_difference_p(same), 1);
  EXPECT_EQ(equivalence_p(same, 0.01), 0);
  const Spread shifted = spread_of(std::array<double, 4>{1, 1, 1, 1});
  EXPECT_EQ(no_difference_p(shifted), 0);
  EXPECT_EQ(equivalence_p(shifted, 0.5), 1);
  EXPECT_TRUE(mean_interval(shifted, 0.95).holds(1));
}

TEST(Median, CountsMissesAsInfinite) {
  const double miss = INFINITY;
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median_of({miss, 1, 2}), 2);
  EXPECT_EQ(median_of({miss, 1, 2, miss}), miss);
  EXPECT_EQ(median_of({miss, miss, 1}), miss);
  EXPECT_TRUE(std::isnan(median_of({})));
}

struct Rates {
  double told_apart = 0;       // two-sided test at 5 %
  double told_equivalent = 0;  // TOST at 5 % with margin 1
  double interval_holds = 0;   // of the true difference, 95 %
};

/// Share of `draws` experiments of n pairs, true difference `difference`, deviation 1.
Rates rates_of(double difference, int n, int draws, std::uint64_t seed) {
  const Rng rng(seed, Stream::kTestData);
  Rates rates;
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<double> values;
    for (int i = 0; i < n; ++i) {
      values.push_back(difference +
                       rng.normal(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(draw)));
    }
    const Spread spread = spread_of(values);
    rates.told_apart += no_difference_p(spread) < 0.05 ? 1 : 0;
    rates.told_equivalent += equivalence_p(spread, 1) < 0.05 ? 1 : 0;
    rates.interval_holds += mean_interval(spread, 0.95).holds(difference) ? 1 : 0;
  }
  rates.told_apart /= draws;
  rates.told_equivalent /= draws;
  rates.interval_holds /= draws;
  return rates;
}

constexpr int kDraws = 20'000;
/// Four standard deviations of a share p of kDraws.
double drawn(double p) { return 4 * std::sqrt(p * (1 - p) / kDraws); }

TEST(MonteCarlo, NullsAreCalledDifferencesAtTheLevelAndNoOftener) {
  for (const int n : {3, 6, 8, 12}) {
    const Rates rates = rates_of(0, n, kDraws, 7);
    EXPECT_NEAR(rates.told_apart, 0.05, drawn(0.05)) << n << " pairs, seed 7";
    EXPECT_NEAR(rates.interval_holds, 0.95, drawn(0.95)) << n << " pairs, seed 7";
  }
}

TEST(MonteCarlo, EffectsAreFoundWithTheStatedPower) {
  for (const int n : {6, 8, 12}) {
    const double difference = detectable_difference(1, n, 0.05, 0.8);
    const Rates rates = rates_of(difference, n, kDraws, 11);
    EXPECT_NEAR(rates.told_apart, 0.8, drawn(0.8)) << n << " pairs, seed 11";
    EXPECT_NEAR(rates.interval_holds, 0.95, drawn(0.95)) << n << " pairs, seed 11";
  }
}

// At the margin itself, the worst case, a false "equivalent" comes at most at the level.
TEST(MonteCarlo, ADifferenceAsLargeAsTheMarginIsRarelyCalledEquivalent) {
  for (const int n : {6, 8, 12}) {
    EXPECT_LT(rates_of(1, n, kDraws, 13).told_equivalent, 0.05 + drawn(0.05)) << n;
    EXPECT_LT(rates_of(1.5, n, kDraws, 17).told_equivalent, 0.02) << n;
  }
  EXPECT_GT(rates_of(0, 12, kDraws, 19).told_equivalent, 0.8);
}

}  // namespace
}  // namespace isthmus::report::this_file
