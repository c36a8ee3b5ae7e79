// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include "kernels/kernel_test.h"

namespace isthmus::kernels::this_file {
namespace {

struct Case {
  std::int64_t rows, channels;
};
constexpr Case kCases[] = {{1, 1}, {3, 7}, {65, 48}, {130, 129}, {40, 384}};
constexpr double kEps = 1e-5;

enum class Kind { kLayer, kRms };
constexpr Kind kKinds[] = {Kind::kLayer, Kind::kRms};

template <typename Real>
void forward(Kind kind, ThreadTeam& team, const NormForward<Real>& f) {
  if (kind == Kind::kLayer) {
    layer_norm_forward(team, f);
  } else {
    rms_norm_forward(team, f);
  }
}

template <typename Real>
void backward(Kind kind, ThreadTeam& team, const NormBackward<Real>& n) {
  if (kind == Kind::kLayer) {
    layer_norm_backward(team, n);
  } else {
    rms_norm_backward(team, n);
  }
}

/// A norm, forward and backward, on seeded values.
template <typename Real>
struct NormRun {
  NormRun(const Case& c, Kind kind)
      : c_(c),
        kind_(kind),
        x(normal_values<Real>(c.rows * c.channels, 1)),
        weight(normal_values<Real>(c.channels, 3)),
        bias(normal_values<Real>(c.channels, 4)),
        dy(normal_values<Real>(c.rows * c.channels, 5)),
        d_sum(normal_values<Real>(c.rows * c.channels, 6)),
        y(x.size()),
        mean(static_cast<std::size_t>(c.rows)),
        rstd(mean.size()),
        ds(x.size()),
        d_weight(weight.size(), Real{1}),
        d_bias(bias.size(), Real{1}) {}

  void run_forward(ThreadTeam& team) {
    forward<Real>(kind_, team,
                  {.rows = c_.rows,
                   .channels = c_.channels,
                   .eps = kEps,
                   .x = x.data(),
                   .weight = weight.data(),
                   .bias = kind_ == Kind::kLayer ? bias.data() : nullptr,
                   .y = y.data(),
                   .mean = mean.data(),
                   .rstd = rstd.data()});
  }
  void run_backward(ThreadTeam& team) {
    backward<Real>(kind_, team,
                   {.rows = c_.rows,
                    .channels = c_.channels,
                    .dy = dy.data(),
                    .s = x.data(),
                    .weight = weight.data(),
                    .mean = mean.data(),
                    .rstd = rstd.data(),
                    .d_sum = d_sum.data(),
                    .ds = ds.data(),
                    .d_weight = d_weight.data(),
                    .d_bias = kind_ == Kind::kLayer ? d_bias.data() : nullptr});
  }

  Case c_;
  Kind kind_;
  std::vector<Real> x, weight, bias, dy, d_sum, y, mean, rstd, ds, d_weight, d_bias;
};

/// The definition in double for row r.
std::vector<double> naive_row(const NormRun<double>& run, std::size_t r) {
  const std::size_t c = run.weight.size();
  std::vector<double> s(c);
  double mean = 0;
  for (std::size_t i = 0; i < c; ++i) {
    s[i] = run.x[r * c + i];
    mean += s[i] / static_cast<double>(c);
  }
  if (run.kind_ == Kind::kRms) mean = 0;
  double variance = 0;
  for (const double value : s) variance += (value - mean) * (value - mean) / static_cast<double>(c);
  for (std::size_t i = 0; i < c; ++i) {
    s[i] = (s[i] - mean) / std::sqrt(variance + kEps) * run.weight[i] +
           (run.kind_ == Kind::kLayer ? run.bias[i] : 0);
  }
  return s;
}

TEST(NormReference, ForwardIsTheDefinition) {
  ThreadTeam team(2);
  for (const Kind kind : kKinds) {
    for (const Case& c : kCases) {
      NormRun<double> run(c, kind);
      run.run_forward(team);
      for (std::size_t r = 0; r < run.mean.size(); ++r) {
        const std::vector<double> expected = naive_row(run, r);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(run.y[r * expected.size() + i], expected[i], 1e-11);
        }
      }
    }
  }
}

TEST(NormReference, BackwardMatchesCentralDifferences) {
  ThreadTeam team(1);
  constexpr double kStep = 1e-6;
  for (const Kind kind : kKinds) {
    NormRun<double> run({3, 7}, kind);
    run.run_forward(team);
    run.run_backward(team);
    // dy . y + d_sum . x: x has a second use past the norm.
    const auto objective = [&] {
      NormRun<double> other = run;
      other.run_forward(team);
      double total = 0;
      for (std::size_t i = 0; i < other.y.size(); ++i) {
        total += run.dy[i] * other.y[i] + run.d_sum[i] * other.x[i];
      }
      return total;
    };
    const auto difference = [&](double& value) {
      const double kept = value;
      value = kept + kStep;
      const double above = objective();
      value = kept - kStep;
      const double below = objective();
      value = kept;
      return (above - below) / (2 * kStep);
    };
    const std::vector<double> ds = run.ds;
    for (std::size_t i = 0; i < run.x.size(); ++i) EXPECT_NEAR(ds[i], difference(run.x[i]), 1e-7);
    for (std::size_t i = 0; i < run.weight.size(); ++i) {
      EXPECT_NEAR(run.d_weight[i] - 1, difference(run.weight[i]), 1e-7);  // accumulated on a one
      if (kind == Kind::kLayer) {
        EXPECT_NEAR(run.d_bias[i] - 1, difference(run.bias[i]), 1e-7);
      }
    }
  }
}

using NormTest = IsaTest;
ISTHMUS_EVERY_ISA(NormTest);

TEST_P(NormTest, AgreesWithDoubleWithinRounding) {
  ThreadTeam team(2);
  for (const Kind kind : kKinds) {
    for (const Case& c : kCases) {
      if (c.channels == 1) continue;  // the variance of one value is rounding alone
      NormRun<float> fast(c, kind);
      NormRun<double> exact(c, kind);
      fast.run_forward(team);
      fast.run_backward(team);
      exact.run_forward(team);
      exact.run_backward(team);
      // Values below 20 and a few roundings each; sums over channels or rows of such values.
      const double row = kFloatEpsilon * (40 + static_cast<double>(c.channels) / 4);
      const double column = kFloatEpsilon * (40 + 2 * static_cast<double>(c.rows));
      for (std::size_t i = 0; i < fast.y.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(fast.y[i]), exact.y[i], row);
        ASSERT_NEAR(static_cast<double>(fast.ds[i]), exact.ds[i], row);
      }
      for (std::size_t i = 0; i < fast.weight.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(fast.d_weight[i]), exact.d_weight[i], column);
        ASSERT_NEAR(static_cast<double>(fast.d_bias[i]), exact.d_bias[i], column);
      }
    }
  }
}

TEST_P(NormTest, BitsDoNotDependOnTheTeam) {
  for (const Kind kind : kKinds) {
    for (const Case& c : kCases) {
      std::vector<float> first;
      for (const int size : kTeamSizes) {
        ThreadTeam team(size);
        NormRun<float> run(c, kind);
        run.run_forward(team);
        run.run_backward(team);
        std::vector<float> all = run.y;
        for (const auto& part : {run.ds, run.d_weight, run.d_bias}) {
          all.insert(all.end(), part.begin(), part.end());
        }
        if (size == 1) first = all;
        ASSERT_EQ(all, first) << "team of " << size;
      }
    }
  }
}

TEST_P(NormTest, WorksInPlace) {
  ThreadTeam team(1);
  NormRun<float> apart({9, 40}, Kind::kRms);
  apart.run_forward(team);
  apart.run_backward(team);
  NormRun<float> in_place({9, 40}, Kind::kRms);
  in_place.y = in_place.x;
  rms_norm_forward<float>(team, {.rows = 9,
                                 .channels = 40,
                                 .eps = kEps,
                                 .x = in_place.y.data(),
                                 .weight = in_place.weight.data(),
                                 .y = in_place.y.data(),
                                 .rstd = in_place.rstd.data()});
  rms_norm_backward<float>(team, {.rows = 9,
                                  .channels = 40,
                                  .dy = in_place.dy.data(),
                                  .s = in_place.x.data(),
                                  .weight = in_place.weight.data(),
                                  .rstd = in_place.rstd.data(),
                                  .d_sum = in_place.d_sum.data(),
                                  .ds = in_place.d_sum.data(),
                                  .d_weight = in_place.d_weight.data()});
  EXPECT_EQ(in_place.y, apart.y);
  EXPECT_EQ(in_place.d_sum, apart.ds);
}

}  // namespace
}  // namespace isthmus::kernels::this_file
