// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include "kernels/kernel_test.h"

namespace isthmus::kernels {
namespace {

struct Case {
  std::int64_t m, n, k;
};

// One tile and less, tails in every direction, several panels, several blocks of k.
constexpr Case kCases[] = {{1, 1, 1},     {6, 64, 16},    {7, 65, 17},  {5, 3, 2},
                           {1, 200, 40},  {97, 1, 33},    {48, 64, 64}, {50, 130, 96},
                           {13, 33, 400}, {100, 70, 800}, {193, 257, 5}};

struct Layout {
  bool a_transposed, b_transposed;
};
constexpr Layout kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

struct Variant {
  Layout layout;
  bool bf16;
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const Layout layout : kLayouts) {
    all.push_back({layout, false});
    all.push_back({layout, true});
  }
  return all;
}
const std::vector<Variant> kVariants = variants();

/// Operands with rows a little further apart than they must be.
template <typename Real>
struct Operands {
  Operands(const Case& s, Layout layout, std::vector<Real> (*values)(std::int64_t, std::uint64_t))
      : lda((layout.a_transposed ? s.m : s.k) + 3),
        ldb((layout.b_transposed ? s.k : s.n) + 5),
        ldc(s.n + 2),
        a(values((layout.a_transposed ? s.k : s.m) * lda, 1)),
        b(values((layout.b_transposed ? s.n : s.k) * ldb, 2)),
        c(values(s.m * ldc, 3)),
        bias(values(s.n, 4)),
        residual(values(s.m * ldc, 5)),
        factor(values(s.m * ldc, 6)),
        gelu_out(c.size()),
        column_sum(values(s.n, 8)) {}
  std::int64_t lda, ldb, ldc;
  std::vector<Real> a, b, c, bias, residual, factor, gelu_out, column_sum;

  Gemm<Real> plain(const Case& s, Layout layout) {
    return {.m = s.m,
            .n = s.n,
            .k = s.k,
            .a = a.data(),
            .lda = lda,
            .a_transposed = layout.a_transposed,
            .b = b.data(),
            .ldb = ldb,
            .b_transposed = layout.b_transposed,
            .c = c.data(),
            .ldc = ldc};
  }
};

/// The nearest number with eight significant bits, ties to even.
double to_bf16(double x) {
  if (x == 0) return x;
  const double unit = std::ldexp(1.0, std::ilogb(x) - 7);
  return std::nearbyint(x / unit) * unit;
}

/// Element (i, j) of op(A) op(B) in double.
template <typename Real>
double product(const Gemm<Real>& g, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t p = 0; p < g.k; ++p) {
    const auto a = static_cast<double>(g.a_transposed ? g.a[p * g.lda + i] : g.a[i * g.lda + p]);
    const auto b = static_cast<double>(g.b_transposed ? g.b[j * g.ldb + p] : g.b[p * g.ldb + j]);
    sum += g.bf16 ? to_bf16(a) * to_bf16(b) : a * b;
  }
  return sum;
}

double gelu_in_double(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope_in_double(double x) {
  constexpr double kStep = 1e-5;
  return (gelu_in_double(x + kStep) - gelu_in_double(x - kStep)) / (2 * kStep);
}

using GemmTest = IsaTest;
ISTHMUS_EVERY_ISA(GemmTest);

TEST_P(GemmTest, IsExactOnSmallWholeNumbersInEveryLayout) {
  ThreadTeam team(2);
  for (const Case& s : kCases) {
    for (const auto& [layout, bf16] : kVariants) {
      Operands<float> x(s, layout, whole_values<float>);
      const std::vector<float> before = x.c;
      Gemm<float> g = x.plain(s, layout);
      g.bf16 = bf16;
      g.accumulate = true;
      gemm(team, g);
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < x.ldc; ++j) {
          const std::size_t at = static_cast<std::size_t>(i * x.ldc + j);
          const double sum = j < s.n ? product(g, i, j) : 0.0;  // beyond n nothing is written
          ASSERT_EQ(static_cast<double>(x.c[at]), static_cast<double>(before[at]) + sum)
              << s.m << " " << s.n << " " << s.k << " at " << i << " " << j;
        }
      }
    }
  }
}

/// Which epilogues a case asks for, as bits.
enum Asked : unsigned { kBias = 1, kResidual = 2, kFactor = 4, kGelu = 8, kAll = 15 };

template <typename Real>
void ask(Gemm<Real>& g, Operands<Real>& x, unsigned asked) {
  g.accumulate = true;
  if ((asked & kBias) != 0) g.bias = x.bias.data();
  if ((asked & kResidual) != 0) g.residual = x.residual.data();
  g.ldr = x.ldc;
  if ((asked & kFactor) != 0) g.factor = x.factor.data();
  if ((asked & kGelu) != 0) g.gelu_out = x.gelu_out.data();
}

/// C and gelu_out against double, `before` being C as it was.
void expect_epilogues(const Gemm<float>& g, const Operands<float>& x,
                      const std::vector<float>& before) {
  // k + 3 terms of size about 1, each rounded once, then a factor of that size.
  const double tolerance = kFloatEpsilon * 4 * (static_cast<double>(g.k) + 8);
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * x.ldc + j);
      double value = static_cast<double>(before[at]) + product(g, i, j);
      if (g.bias != nullptr) value += static_cast<double>(g.bias[j]);
      if (g.residual != nullptr) value += static_cast<double>(g.residual[at]);
      if (g.factor != nullptr) value *= static_cast<double>(g.factor[at]);
      const double c = g.gelu_out == nullptr ? value : gelu_slope_in_double(value);
      ASSERT_NEAR(static_cast<double>(x.c[at]), c, tolerance * 4 + 1e-9);
      if (g.gelu_out == nullptr) continue;
      ASSERT_NEAR(static_cast<double>(g.gelu_out[at]), gelu_in_double(value), tolerance * 4);
    }
  }
}

TEST_P(GemmTest, EpiloguesFollowTheContractInEveryCombination) {
  ThreadTeam team(2);
  const Case s{50, 131, 20};  // more than one row panel, a masked vector in the last column panel
  for (const auto& [layout, bf16] : kVariants) {
    for (unsigned asked = 0; asked <= kAll; ++asked) {
      Operands<float> x(s, layout, normal_values<float>);
      const std::vector<float> before = x.c;
      Gemm<float> g = x.plain(s, layout);
      ask(g, x, asked);
      g.bf16 = bf16;
      gemm(team, g);
      expect_epilogues(g, x, before);
      if (HasFatalFailure()) FAIL() << "epilogues " << asked << " bf16 " << bf16;
    }
  }
}

TEST_P(GemmTest, EpiloguesFollowTheContractInOrder) {
  ThreadTeam team(2);
  for (const Case& s : kCases) {
    for (const auto& [layout, bf16] : kVariants) {
      Operands<float> x(s, layout, normal_values<float>);
      const std::vector<float> before = x.c;
      const std::vector<float> column_sums_before = x.column_sum;
      Gemm<float> g = x.plain(s, layout);
      ask(g, x, kAll);
      g.bf16 = bf16;
      if (!layout.b_transposed) g.column_sum = x.column_sum.data();
      gemm(team, g);
      expect_epilogues(g, x, before);
      const double tolerance = kFloatEpsilon * 4 * (static_cast<double>(s.k) + 8);
      for (std::int64_t j = 0; j < s.n && g.column_sum != nullptr; ++j) {
        double column = static_cast<double>(column_sums_before[static_cast<std::size_t>(j)]);
        for (std::int64_t p = 0; p < s.k; ++p) {
          column += static_cast<double>(g.b[p * g.ldb + j]);
        }
        ASSERT_NEAR(static_cast<double>(x.column_sum[static_cast<std::size_t>(j)]), column,
                    tolerance);
      }
    }
  }
}

TEST_P(GemmTest, BitsDoNotDependOnTheTeam) {
  for (const Case& s : kCases) {
    for (const auto& [layout, bf16] : kVariants) {
      std::vector<float> first;
      for (const int size : kTeamSizes) {
        ThreadTeam team(size);
        Operands<float> x(s, layout, normal_values<float>);
        Gemm<float> g = x.plain(s, layout);
        g.accumulate = true;
        g.bf16 = bf16;
        if (!layout.b_transposed) g.column_sum = x.column_sum.data();
        gemm(team, g);
        x.c.insert(x.c.end(), x.column_sum.begin(), x.column_sum.end());
        if (size == 1) first = x.c;
        ASSERT_EQ(x.c, first) << "team of " << size;
      }
    }
  }
}

TEST_P(GemmTest, NoStepsLeaveTheEpilogueAlone) {
  ThreadTeam team(1);
  const std::vector<float> bias = {1, 2, 3};
  std::vector<float> c(6, -1);
  gemm<float>(team, {.m = 2,
                     .n = 3,
                     .k = 0,
                     .a = c.data(),
                     .lda = 1,
                     .b = c.data(),
                     .ldb = 3,
                     .c = c.data(),
                     .ldc = 3,
                     .bias = bias.data()});
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(GemmReference, IsTheDefinition) {
  ThreadTeam team(2);
  const Case s{7, 5, 9};
  for (const Layout layout : kLayouts) {
    Operands<double> x(s, layout, whole_values<double>);
    const Gemm<double> g = x.plain(s, layout);
    gemm(team, g);
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        EXPECT_EQ(x.c[static_cast<std::size_t>(i * x.ldc + j)], product(g, i, j));
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
