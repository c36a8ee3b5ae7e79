// SPDX-License-Identifier: Apache-2.0
// The only includer of Boost.Math, whose distributions these are.
#include "report/data/statistics.h"

#include <algorithm>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/check.h"

namespace isthmus::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using boost::math::complement;
using boost::math::non_central_t;
using boost::math::students_t;

/// P(T > t), without the cancellation of 1 - cdf.
double upper_tail(double t, double freedom) {
  if (std::isinf(t)) {
    return t > 0 ? 0 : 1;
  }
  return cdf(complement(students_t(freedom), t));
}

double freedom_of(int n) { return static_cast<double>(n - 1); }

/// Standard error of the mean; 0 when all values are the same.
double error_of(const Spread& spread) {
  return spread.deviation / std::sqrt(static_cast<double>(spread.n));
}

/// Distance in standard errors. Values without any spread are as far as can be, or at no distance.
double in_errors(double distance, double error) {
  if (error > 0) {
    return distance / error;
  }
  return distance == 0 ? 0 : std::copysign(kInfinity, distance);
}

}  // namespace

double student_t_cdf(double t, double freedom) {
  ISTHMUS_CHECK(freedom > 0, freedom);
  return upper_tail(-t, freedom);
}

double student_t_quantile(double probability, double freedom) {
  ISTHMUS_CHECK(freedom > 0, freedom);
  ISTHMUS_CHECK(probability > 0 && probability < 1, probability);
  return quantile(students_t(freedom), probability);
}

Spread spread_of(std::span<const double> values) {
  Spread spread{.n = static_cast<int>(values.size())};
  if (values.empty()) {
    return spread;
  }
  for (const double value : values) {
    spread.mean += value;
  }
  spread.mean /= static_cast<double>(spread.n);
  if (spread.n < 2) {
    return spread;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = std::sqrt(squares / freedom_of(spread.n));
  return spread;
}

Interval mean_interval(const Spread& spread, double confidence) {
  ISTHMUS_CHECK(confidence > 0 && confidence < 1, confidence);
  if (spread.n < 2) {
    return {-kInfinity, kInfinity};
  }
  const double t = student_t_quantile(0.5 + confidence / 2, freedom_of(spread.n));
  const double half = t * error_of(spread);
  return {spread.mean - half, spread.mean + half};
}

double no_difference_p(const Spread& differences) {
  if (differences.n < 2) {
    return 1;
  }
  const double t = in_errors(std::abs(differences.mean), error_of(differences));
  return 2 * upper_tail(t, freedom_of(differences.n));
}

double equivalence_p(const Spread& differences, double margin) {
  ISTHMUS_CHECK(margin > 0, margin);
  if (differences.n < 2) {
    return 1;
  }
  const double error = error_of(differences);
  const double above_low = in_errors(differences.mean + margin, error);
  const double below_high = in_errors(margin - differences.mean, error);
  return upper_tail(std::min(above_low, below_high), freedom_of(differences.n));
}

double detection_power(double difference, double deviation, int n, double level) {
  ISTHMUS_CHECK(level > 0 && level < 1, level);
  if (n < 2) {
    return 0;
  }
  const double t = student_t_quantile(1 - level / 2, freedom_of(n));
  const double shift =
      in_errors(std::abs(difference), deviation / std::sqrt(static_cast<double>(n)));
  if (std::isinf(shift)) {
    return 1;
  }
  const non_central_t statistic(freedom_of(n), shift);
  return cdf(complement(statistic, t)) + cdf(statistic, -t);
}

double detectable_difference(double deviation, int n, double level, double power) {
  ISTHMUS_CHECK(power > level && power < 1, power, level);
  if (n < 2) {
    return kInfinity;
  }
  // In units of the standard error; the power grows with the distance.
  const double per_error = 1 / std::sqrt(static_cast<double>(n));
  const auto short_of = [&](double errors) {
    return detection_power(errors * per_error, 1, n, level) - power;
  };
  double low = 0;
  double high = 1;
  while (short_of(high) < 0) {
    low = high;
    high *= 2;
  }
  constexpr int kBits = 40;
  std::uintmax_t steps = 100;  // it takes about ten
  const auto found = boost::math::tools::toms748_solve(
      short_of, low, high, boost::math::tools::eps_tolerance<double>(kBits), steps);
  return found.second * per_error * deviation;
}

double median_of(std::vector<double> values) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) {
    return values[middle];
  }
  return std::isinf(values[middle]) ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace isthmus::report
