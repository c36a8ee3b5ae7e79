// SPDX-License-Identifier: Apache-2.0
// Paired comparison over seeds: what a handful of runs can and cannot say. Every function takes
// differences d_i = candidate - baseline of the same seed i, or plain values, and treats them as
// draws from one normal distribution (Student's t; Gosset 1908). Pure; any thread.
//
//   difference    two-sided t test of mean 0, with its interval
//   equivalence   two one-sided tests (TOST; Schuirmann 1987): the mean lies within +-margin
//   detection     power of the first at a true difference, from the noncentral t distribution
//
// Fewer than two values say nothing: intervals are infinite and p-values 1.
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

/// Interval of the mean at `confidence` (0.95): mean +- t s / sqrt(n).
[[nodiscard]] Interval mean_interval(const Spread& spread, double confidence);
/// Two-sided p-value of the mean being zero.
[[nodiscard]] double no_difference_p(const Spread& differences);

/// p-value of two one-sided tests: the larger of P(mean <= -margin) and P(mean >= margin). Below
/// `level` the mean is shown to lie within +-margin; that is the case exactly when
/// mean_interval(1 - 2 level) does. REQUIRES: margin > 0.
[[nodiscard]] double equivalence_p(const Spread& differences, double margin);

/// Chance that n pairs whose differences have the true mean `difference` and the true `deviation`
/// are told apart at `level`, two-sided.
[[nodiscard]] double detection_power(double difference, double deviation, int n, double level);
/// Smallest true difference that is found with chance `power`; infinite for n < 2.
[[nodiscard]] double detectable_difference(double deviation, int n, double level, double power);

/// Middle of the values, infinities among them; NaN for none. The mean of the two middle ones for
/// an even number, infinite when either is.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace isthmus::report
