// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include "kernels/gemm.h"
#include "kernels/kernel_test.h"
#include "kernels/rotary.h"

namespace isthmus::kernels::this_file {
namespace {

constexpr std::int64_t kOddSize = 5003;  // no multiple of a vector, more than one block

double gelu_in_double(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu_in_double(double x) { return x / (1 + std::exp(-x)); }

template <typename Function>
double slope(Function f, double x) {
  const double step = 1e-5 * std::max(1.0, std::fabs(x));
  return (f(x + step) - f(x - step)) / (2 * step);
}

/// From -12 to 12, where the activations bend, and some far out.
std::vector<float> sweep() {
  std::vector<float> x;
  for (std::int64_t i = 0; i < kOddSize; ++i) {
    x.push_back(static_cast<float>(-12.0 + 24.0 * static_cast<double>(i) / kOddSize));
  }
  x.insert(x.end(), {-1e4f, -90.0f, -30.0f, 30.0f, 90.0f, 1e4f, 0.0f, -0.0f});
  return x;
}

template <typename Real>
struct GeluPair {
  std::vector<Real> value, slope;
};

/// gelu(x) and gelu'(x) through the epilogue of a product of no steps.
template <typename Real>
GeluPair<Real> gelu_of(ThreadTeam& team, const std::vector<Real>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  GeluPair<Real> y{std::vector<Real>(x.size()), std::vector<Real>(x.size())};
  gemm<Real>(team, {.m = 1,
                    .n = n,
                    .a = x.data(),
                    .b = x.data(),
                    .ldb = n,
                    .c = y.slope.data(),
                    .ldc = n,
                    .bias = x.data(),
                    .gelu_out = y.value.data()});
  return y;
}

using ActivationTest = IsaTest;
ISTHMUS_EVERY_ISA(ActivationTest);

TEST_P(ActivationTest, GeluKeepsRelativeAccuracy) {
  ThreadTeam team(2);
  const std::vector<float> x = sweep();
  const std::vector<float> y = gelu_of(team, x).value;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = gelu_in_double(static_cast<double>(x[i]));
    // The argument of exp is at most 100 here before it underflows, and its rounding is relative;
    // tanh in double loses the tail below 1e-16 of x itself.
    const double argument =
        2 * std::fabs(static_cast<double>(x[i])) * (0.8 + 0.036 * static_cast<double>(x[i] * x[i]));
    const double tolerance = kFloatEpsilon * (3 + std::min(argument, 100.0)) * std::fabs(exact) +
                             2e-16 * std::fabs(static_cast<double>(x[i]));
    ASSERT_NEAR(static_cast<double>(y[i]), exact, tolerance) << x[i];
  }
}

TEST_P(ActivationTest, GeluGradientIsTheSlope) {
  ThreadTeam team(2);
  const std::vector<float> x = sweep();
  const std::vector<float> dx = gelu_of(team, x).slope;
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(dx[i]), slope(gelu_in_double, static_cast<double>(x[i])),
                8 * kFloatEpsilon)
        << x[i];
  }
}

// A gradient times a slope below that would be a subnormal number, on which products crawl.
TEST_P(ActivationTest, GeluIsZeroWhereItWouldBeTiny) {
  constexpr double kLeast = 1e-28;
  constexpr float kSurelyZero = -8.9f, kSurelyNot = -8.8f;  // the cut: 2 u = -64 at x = -8.873
  ThreadTeam team(2);
  const std::vector<float> x = sweep();
  const GeluPair<float> y = gelu_of(team, x);
  int below = 0, above = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    below += x[i] < kSurelyZero ? 1 : 0;
    above += x[i] > kSurelyNot && x[i] < 0 ? 1 : 0;
    for (const float found : {y.value[i], y.slope[i]}) {
      ASSERT_TRUE(found == 0 || std::fabs(static_cast<double>(found)) >= kLeast) << x[i];
      if (x[i] < kSurelyZero) {
        ASSERT_EQ(found, 0) << x[i];
      } else if (x[i] > kSurelyNot && x[i] < 0) {
        ASSERT_NE(found, 0) << x[i];
      }
    }
  }
  EXPECT_GT(below, 100);
  EXPECT_GT(above, 100);
}

TEST_P(ActivationTest, GeluByItselfHasTheBitsOfTheEpilogue) {
  ThreadTeam team(2);
  std::vector<float> x;
  for (int i = 0; i < 7; ++i) {  // more than a block of values
    const std::vector<float> one = sweep();
    x.insert(x.end(), one.begin(), one.end());
  }
  const GeluPair<float> expected = gelu_of(team, x);
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> value(x.size());
  gelu_values<float>(team, n, x.data(), value.data(), nullptr);
  EXPECT_EQ(value, expected.value);
  value.assign(x.size(), 0.0f);
  gelu_values(team, n, x.data(), value.data(), x.data());
  EXPECT_EQ(value, expected.value);
  EXPECT_EQ(x, expected.slope);
}

TEST_P(ActivationTest, SwiGluAndItsGradientsInAFusedBuffer) {
  ThreadTeam team(2);
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kColumns = 29;
  std::vector<float> x = normal_values<float>(kRows * 2 * kColumns, 1);
  const std::vector<float> d_out = normal_values<float>(kRows * kColumns, 2);
  std::vector<float> out(d_out.size());
  const SwiGlu<float> s{.rows = kRows,
                        .columns = kColumns,
                        .gate = x.data(),
                        .up = x.data() + kColumns,
                        .ld_in = 2 * kColumns,
                        .ld_out = kColumns};
  swiglu_forward(team, s, out.data());
  const std::vector<float> input = x;
  swiglu_backward(team, s, d_out.data(), x.data(), x.data() + kColumns);  // over its own input
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const std::size_t gate_at = static_cast<std::size_t>(r * 2 * kColumns + j);
      const std::size_t up_at = gate_at + kColumns;
      const std::size_t at = static_cast<std::size_t>(r * kColumns + j);
      const double gate = static_cast<double>(input[gate_at]);
      const double up = static_cast<double>(input[up_at]);
      const double d = static_cast<double>(d_out[at]);
      constexpr double kTolerance = 64 * kFloatEpsilon;  // a few roundings of values below 10
      ASSERT_NEAR(static_cast<double>(out[at]), silu_in_double(gate) * up, kTolerance);
      ASSERT_NEAR(static_cast<double>(x[gate_at]), d * up * slope(silu_in_double, gate),
                  kTolerance);
      ASSERT_NEAR(static_cast<double>(x[up_at]), d * silu_in_double(gate), kTolerance);
    }
  }
}

TEST_P(ActivationTest, RotaryTurnsPairsAndBack) {
  ThreadTeam team(2);
  constexpr std::int64_t kBatch = 2, kSeq = 33, kHeads = 3, kDim = 20;
  std::vector<float> cosine(kSeq * kDim / 2);
  std::vector<float> sine(cosine.size());
  rotary_table(kSeq, kDim, 10000.0, cosine.data(), sine.data());
  std::vector<float> x = normal_values<float>(kBatch * kSeq * kHeads * kDim, 1);
  const std::vector<float> before = x;
  const HeadsView<float> view = heads_in_rows(x.data(), kSeq, kHeads * kDim, kDim);
  rotary_forward(team, kBatch, kSeq, kHeads, kDim, view, cosine.data(), sine.data());
  constexpr double kTolerance = 8 * kFloatEpsilon;  // two products of values below 5, one sum
  for (std::size_t row = 0; row < x.size() / kDim; ++row) {
    const std::size_t t = row / kHeads % kSeq;
    for (std::size_t i = 0; i < kDim / 2; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / (kDim / 2.0));
      const double low = static_cast<double>(before[row * kDim + i]);
      const double high = static_cast<double>(before[row * kDim + i + kDim / 2]);
      ASSERT_NEAR(static_cast<double>(x[row * kDim + i]),
                  low * std::cos(angle) - high * std::sin(angle), kTolerance);
      ASSERT_NEAR(static_cast<double>(x[row * kDim + i + kDim / 2]),
                  high * std::cos(angle) + low * std::sin(angle), kTolerance);
    }
  }
  rotary_backward(team, kBatch, kSeq, kHeads, kDim, view, cosine.data(), sine.data());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], before[i], kTolerance);
}

// A document in a sequence is turned as it is alone, bit for bit, and back.
TEST_P(ActivationTest, RotaryCountsFromADocumentsFirstRow) {
  ThreadTeam team(2);
  constexpr std::int64_t kSeq = 33, kHeads = 3, kDim = 20, kRow = kHeads * kDim;
  std::vector<float> cosine(kSeq * kDim / 2);
  std::vector<float> sine(cosine.size());
  rotary_table(kSeq, kDim, 10000.0, cosine.data(), sine.data());
  std::vector<std::int32_t> starts(2 * kSeq, 0);
  std::fill(starts.begin() + 5, starts.begin() + 20, 5);
  std::fill(starts.begin() + 20, starts.begin() + kSeq, 20);
  std::fill(starts.begin() + kSeq + 1, starts.end(), 1);
  for (const auto rotate : {rotary_forward<float>, rotary_backward<float>}) {
    std::vector<float> x = normal_values<float>(2 * kSeq * kRow, 1);
    std::vector<float> alone = x;
    rotate(team, 2, kSeq, kHeads, kDim, heads_in_rows(x.data(), kSeq, kRow, kDim), cosine.data(),
           sine.data(), starts.data());
    for (std::int64_t begin = 0; begin < 2 * kSeq;) {
      std::int64_t end = begin + 1;
      while (end < 2 * kSeq && end % kSeq != 0 &&
             starts[static_cast<std::size_t>(end)] == starts[static_cast<std::size_t>(begin)]) {
        ++end;
      }
      rotate(team, 1, end - begin, kHeads, kDim,
             heads_in_rows(alone.data() + begin * kRow, end - begin, kRow, kDim), cosine.data(),
             sine.data(), nullptr);
      begin = end;
    }
    EXPECT_EQ(x, alone);
  }
}

TEST(ActivationReference, DoubleIsTheDefinition) {
  ThreadTeam team(1);
  const std::vector<double> x = normal_values<double>(100, 1);
  const GeluPair<double> y = gelu_of(team, x);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(y.value[i], gelu_in_double(x[i]), 1e-15);
    EXPECT_NEAR(y.slope[i], slope(gelu_in_double, x[i]), 1e-9);
  }
  std::vector<double> value(x.size()), slopes = x;
  gelu_values(team, 100, slopes.data(), value.data(), slopes.data());
  EXPECT_EQ(value, y.value);
  EXPECT_EQ(slopes, y.slope);
}

/// The activations by their definitions.
double activation_in_double(Activation act, double x) {
  if (act == Activation::kSilu) return silu_in_double(x);
  if (act == Activation::kGeluTanh) return gelu_in_double(x);
  return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
}

TEST_P(ActivationTest, ActivationsWithAndWithoutAGate) {
  ThreadTeam team(2);
  constexpr std::int64_t kRows = 40, kColumns = 21;
  for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    for (const bool gated : {true, false}) {
      const std::int64_t width = gated ? 2 * kColumns : kColumns;
      const std::vector<double> x = normal_values<double>(kRows * width, 5);
      const std::vector<double> d_out = normal_values<double>(kRows * kColumns, 6);
      std::vector<double> out(d_out.size()), dx(x.size());
      const SwiGlu<double> s{.rows = kRows,
                             .columns = kColumns,
                             .gate = x.data(),
                             .up = gated ? x.data() + kColumns : nullptr,
                             .ld_in = width,
                             .ld_out = kColumns};
      activation_forward<double>(team, act, s, out.data());
      activation_backward<double>(team, act, s, d_out.data(), dx.data(), dx.data() + kColumns);
      std::vector<float> x32(x.begin(), x.end()), d32(d_out.begin(), d_out.end());
      std::vector<float> out32(out.size()), dx32(x.size());
      const SwiGlu<float> f{.rows = kRows,
                            .columns = kColumns,
                            .gate = x32.data(),
                            .up = gated ? x32.data() + kColumns : nullptr,
                            .ld_in = width,
                            .ld_out = kColumns};
      activation_forward<float>(team, act, f, out32.data());
      activation_backward<float>(team, act, f, d32.data(), dx32.data(), dx32.data() + kColumns);
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t j = 0; j < kColumns; ++j) {
          const auto in = static_cast<std::size_t>(r * width + j);
          const auto at = static_cast<std::size_t>(r * kColumns + j);
          const double up = gated ? x[in + kColumns] : 1;
          const double value = activation_in_double(act, x[in]);
          const auto function = [act](double y) { return activation_in_double(act, y); };
          const double d_gate = d_out[at] * up * slope(function, x[in]);
          EXPECT_NEAR(out[at], value * up, 1e-14);
          EXPECT_NEAR(dx[in], d_gate, 1e-8);
          EXPECT_NEAR(static_cast<double>(out32[at]), value * up, 8 * kFloatEpsilon * 16);
          EXPECT_NEAR(static_cast<double>(dx32[in]), d_gate, 8 * kFloatEpsilon * 16);
          if (gated) {
            EXPECT_NEAR(dx[in + kColumns], d_out[at] * value, 1e-14);
          }
        }
      }
    }
  }
}

TEST(ColumnSums, AddEveryRowOnce) {
  ThreadTeam team(3);
  constexpr std::int64_t kRows = 131, kColumns = 150, kRow = 160;
  const std::vector<float> x = normal_values<float>(kRows * kRow, 7);
  std::vector<float> sums(kColumns, 2.0f);
  add_column_sums<float>(team, kRows, kColumns, x.data(), kRow, sums.data());
  for (std::int64_t j = 0; j < kColumns; ++j) {
    double sum = 2;
    for (std::int64_t r = 0; r < kRows; ++r)
      sum += static_cast<double>(x[static_cast<std::size_t>(r * kRow + j)]);
    EXPECT_NEAR(static_cast<double>(sums[static_cast<std::size_t>(j)]), sum,
                kRows * kFloatEpsilon * 4);
  }
}

}  // namespace
}  // namespace isthmus::kernels::this_file
