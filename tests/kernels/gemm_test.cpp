// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <bit>

#include "kernels/kernel_test.h"

namespace isthmus::kernels::this_file {
namespace {

struct Case {
  std::int64_t m, n, k;
};

// One tile and less, tails in every direction, several panels, several blocks of k.
constexpr Case kCases[] = {{1, 1, 1},     {6, 64, 16},   {7, 65, 17},   {5, 3, 2},
                           {1, 200, 40},  {97, 1, 33},   {48, 64, 64},  {50, 130, 96},
                           {13, 33, 400}, {30, 70, 800}, {193, 257, 5}, {8, 66, 1701},
                           {32, 40, 1600}};

struct Layout {
  bool a_transposed, b_transposed;
};
constexpr Layout kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

/// What lies in memory as bfloat16, as bits.
enum Narrow : unsigned { kNarrowA = 1, kNarrowB = 2, kNarrowC = 4 };

struct Variant {
  Layout layout;
  bool bf16;
  unsigned narrow;
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const Layout layout : kLayouts) {
    all.push_back({layout, false, 0});
    for (const unsigned narrow : {0u, 1u, 2u, 4u, 7u}) all.push_back({layout, true, narrow});
  }
  return all;
}
const std::vector<Variant> kVariants = variants();

/// Operands with rows a little further apart than they must be; those of A are whole pairs of
/// bfloat16 for an even m and k, so that they are read in place.
template <typename Real>
struct Operands {
  Operands(const Case& s, Layout layout, std::vector<Real> (*values)(std::int64_t, std::uint64_t))
      : lda((layout.a_transposed ? s.m : s.k) + (s.m % 2 == 0 ? 4 : 3)),
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

  std::vector<Bf16> narrow_a, narrow_b, narrow_c, narrow_factor, narrow_gelu;

  /// Asks for bfloat16 where the variant does, before g runs; a C in bfloat16 does not accumulate.
  void narrow(Gemm<Real>& g, const Variant& variant) {
    g.bf16 = variant.bf16;
    if ((variant.narrow & kNarrowA) != 0) g.a = rounded(a, narrow_a);
    if ((variant.narrow & kNarrowB) != 0) g.b = rounded(b, narrow_b);
    if ((variant.narrow & kNarrowC) == 0) return;
    g.accumulate = false;
    g.c = rounded(c, narrow_c);
    if (!(g.factor == nullptr)) g.factor = rounded(factor, narrow_factor);
    if (!(g.gelu_out == nullptr)) g.gelu_out = rounded(gelu_out, narrow_gelu);
  }
  /// What g wrote as bfloat16, in c and gelu_out.
  void widen() {
    std::copy(narrow_c.begin(), narrow_c.end(), c.begin());
    std::copy(narrow_gelu.begin(), narrow_gelu.end(), gelu_out.begin());
  }
  static Bf16* rounded(const std::vector<Real>& from, std::vector<Bf16>& to) {
    to.clear();
    for (const Real x : from) to.emplace_back(static_cast<float>(x));
    return to.data();
  }

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
  constexpr int kDropped = 52 - 7;
  auto bits = std::bit_cast<std::uint64_t>(x);
  bits += (std::uint64_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return std::bit_cast<double>(bits >> kDropped << kDropped);
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
    for (const Variant& variant : kVariants) {
      Operands<float> x(s, variant.layout, whole_values<float>);
      const std::vector<float> before = x.c;
      Gemm<float> g = x.plain(s, variant.layout);
      g.accumulate = true;
      x.narrow(g, variant);
      gemm(team, g);
      x.widen();
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < x.ldc; ++j) {
          const std::size_t at = static_cast<std::size_t>(i * x.ldc + j);
          double expected = static_cast<double>(before[at]);  // beyond n nothing is written
          if (j < s.n) expected = product(g, i, j) + (g.accumulate ? expected : 0.0);
          if (g.c.is_bf16()) expected = to_bf16(expected);
          ASSERT_EQ(static_cast<double>(x.c[at]), expected)
              << s.m << " " << s.n << " " << s.k << " at " << i << " " << j << " narrow "
              << variant.narrow;
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
  const double rounding = g.c.is_bf16() ? 1.0 / 256 : 0.0;  // of the value
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * x.ldc + j);
      double value = product(g, i, j);
      if (g.accumulate) value += static_cast<double>(before[at]);
      if (g.bias != nullptr) value += static_cast<double>(g.bias[j]);
      if (g.residual != nullptr) value += static_cast<double>(g.residual[at]);
      if (!(g.factor == nullptr)) value *= static_cast<double>(g.factor[i * x.ldc + j]);
      const double c = g.gelu_out == nullptr ? value : gelu_slope_in_double(value);
      ASSERT_NEAR(static_cast<double>(x.c[at]), c, tolerance * 4 + 1e-9 + rounding * std::abs(c));
      if (g.gelu_out == nullptr) continue;
      const double gelu = gelu_in_double(value);
      ASSERT_NEAR(static_cast<double>(x.gelu_out[at]), gelu,
                  tolerance * 4 + rounding * std::abs(gelu));
    }
  }
}

TEST_P(GemmTest, EpiloguesFollowTheContractInEveryCombination) {
  ThreadTeam team(2);
  const Case s{50, 131, 20};  // more than one row panel, a masked vector in the last column panel
  for (const Variant& variant : kVariants) {
    for (unsigned asked = 0; asked <= kAll; ++asked) {
      Operands<float> x(s, variant.layout, normal_values<float>);
      const std::vector<float> before = x.c;
      Gemm<float> g = x.plain(s, variant.layout);
      ask(g, x, asked);
      x.narrow(g, variant);
      gemm(team, g);
      x.widen();
      expect_epilogues(g, x, before);
      if (HasFatalFailure()) {
        FAIL() << "epilogues " << asked << " bf16 " << variant.bf16 << " narrow " << variant.narrow;
      }
    }
  }
}

TEST_P(GemmTest, EpiloguesFollowTheContractInOrder) {
  ThreadTeam team(2);
  for (const Case& s : kCases) {
    for (const Variant& variant : kVariants) {
      Operands<float> x(s, variant.layout, normal_values<float>);
      const std::vector<float> before = x.c;
      const std::vector<float> column_sums_before = x.column_sum;
      Gemm<float> g = x.plain(s, variant.layout);
      ask(g, x, kAll);
      if (!variant.layout.b_transposed) g.column_sum = x.column_sum.data();
      x.narrow(g, variant);
      gemm(team, g);
      x.widen();
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
    for (const Variant& variant : kVariants) {
      const Operands<float> fresh(s, variant.layout, normal_values<float>);
      std::vector<float> first;
      for (const int size : kTeamSizes) {
        ThreadTeam team(size);
        Operands<float> x = fresh;
        Gemm<float> g = x.plain(s, variant.layout);
        g.accumulate = true;
        if (!variant.layout.b_transposed) g.column_sum = x.column_sum.data();
        x.narrow(g, variant);
        gemm(team, g);
        x.widen();
        x.c.insert(x.c.end(), x.column_sum.begin(), x.column_sum.end());
        if (size == 1) first = x.c;
        ASSERT_EQ(x.c, first) << "team of " << size;
      }
    }
  }
}

// Rounding at the end and nowhere before: several blocks of k included.
TEST_P(GemmTest, NarrowResultsAreTheFloatOnesRounded) {
  ThreadTeam team(2);
  for (const Case& s : kCases) {
    for (const Layout layout : kLayouts) {
      Operands<float> wide(s, layout, normal_values<float>);
      Operands<float> narrow(s, layout, normal_values<float>);
      Gemm<float> g = wide.plain(s, layout);
      g.bf16 = true;
      gemm(team, g);
      g = narrow.plain(s, layout);
      narrow.narrow(g, {layout, true, kNarrowC});
      gemm(team, g);
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < s.n; ++j) {
          const auto at = static_cast<std::size_t>(i * wide.ldc + j);
          ASSERT_EQ(narrow.narrow_c[at].bits, Bf16(wide.c[at]).bits);
        }
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
}  // namespace isthmus::kernels::this_file
