// SPDX-License-Identifier: Apache-2.0
// Paired comparison over seeds: the conclusions that a few runs allow. Every function takes
// differences d_i = candidate - baseline of the same seed i, or plain values, and treats them as
// draws from one normal distribution (Student's t; Gosset 1908). Pure; any thread.
//
//   difference    two-sided t test of mean 0, with its interval
//   equivalence   two one-sided tests (TOST; Schuirmann 1987): the mean lies within +-margin
//   detection     power of the first at a true difference, from the noncentral t distribution
//
// Fewer than two values allow no conclusion: intervals are infinite, p-values 1 and the power 0.
#pragma once

#include <span>
#include <vector>

namespace isthmus::report {

struct Interval {
  double low = 0;
  double high = 0;
  [[nodiscard]] bool holds(double value) const { return low <= value && value <= high; }
};

/// Probability of Student's t at or below `t`. REQUIRES: freedom > 0.
[[nodiscard]] double student_t_cdf(double t, double freedom);
/// The t below which Student's t lies with `probability`. REQUIRES: 0 < probability < 1.
[[nodiscard]] double student_t_quantile(double probability, double freedom);

/// Mean and spread of values; `deviation` is the sample's, with n - 1.
struct Spread {
  int n = 0;
  double mean = 0;
  double deviation = 0;
};
[[nodiscard]] Spread spread_of(std::span<const double> values);

/// Interval of the mean at `confidence`, such as 0.95: mean +- t s / sqrt(n). REQUIRES: 0 <
/// confidence < 1.
[[nodiscard]] Interval mean_interval(const Spread& spread, double confidence);
/// Two-sided p-value of the mean being zero.
[[nodiscard]] double no_difference_p(const Spread& differences);

/// p-value of two one-sided tests: the larger of P(mean <= -margin) and P(mean >= margin). Below
/// `level` the mean is shown to lie within +-margin; this is equivalent to mean_interval(1 - 2
/// level) lying there. REQUIRES: margin > 0.
[[nodiscard]] double equivalence_p(const Spread& differences, double margin);

/// Probability that n pairs, whose differences have the true mean `difference` and the true
/// `deviation`, show a difference at `level`, two-sided. REQUIRES: 0 < level < 1.
[[nodiscard]] double detection_power(double difference, double deviation, int n, double level);
/// Smallest true difference that is found with probability `power`; infinite for n < 2. REQUIRES:
/// 0 < level < power < 1.
[[nodiscard]] double detectable_difference(double deviation, int n, double level, double power);

/// Median of the values, which may include infinities; NaN for none. For an even number the mean of
/// the two middle ones, infinite if either is.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace isthmus::report
