// SPDX-License-Identifier: Apache-2.0
#include "kernels/muon.h"

#include <span>

#include "kernels/golden/torch_muon.h"
#include "kernels/kernel_test.h"

namespace isthmus::kernels {
namespace {

using MuonTest = IsaTest;
ISTHMUS_EVERY_ISA(MuonTest);

// Rounding to bfloat16 errs by 2^-9 / sqrt(3) of a value on average. The terms a x, b x^3, c x^5 of
// a Newton-Schulz step are products of 1, 3, 5 rounded factors, so a step adds 2^-9 / sqrt(3)
// sqrt(a^2 + 3 b^2 + 5 c^2) = 0.011 of the norm; the four steps after it multiply that by the
// polynomial's slope on the band, about 1.3 each, which sums to 4.3 in squares. Two programs that
// round differently differ by sqrt(2) of it.
constexpr double kBf16Error = 0.011 * 4.3 * 1.42;

/// Uniform in [-1, 1): the same integer hash as golden/make_torch_muon.py.
std::vector<float> hashed(std::uint32_t seed, std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t h = seed + static_cast<std::uint32_t>(i);
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    x[i] = static_cast<float>(h >> 8) / (1 << 23) - 1;
  }
  return x;
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double distance(std::span<const float> x, std::span<const float> y) {
  std::vector<float> difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
  return norm(difference);
}

std::vector<float> transposed(std::span<const float> x, std::int64_t rows, std::int64_t cols) {
  std::vector<float> y;
  for (std::int64_t j = 0; j < cols; ++j) {
    for (std::int64_t i = 0; i < rows; ++i) y.push_back(x[static_cast<std::size_t>(i * cols + j)]);
  }
  return y;
}

/// The orthogonalised `g`: one step of rate 1 from zero without momentum.
std::vector<float> orthogonalized(ThreadTeam& team, std::int64_t rows, std::int64_t cols,
                                  const std::vector<float>& g) {
  std::vector<float> p(g.size());
  std::vector<float> buffer(g.size());
  muon_step(team, {.lr = 1, .momentum = 0, .nesterov = false}, rows, cols, p.data(), g.data(),
            buffer.data());
  for (float& value : p) value = -value;
  return p;
}

/// Singular values by one-sided Jacobi rotations (Golub & Van Loan, 8.6.3) of the shorter side.
std::vector<double> singular_values(std::int64_t rows, std::int64_t cols, std::vector<float> x) {
  if (rows > cols) {
    x = transposed(x, rows, cols);
    std::swap(rows, cols);
  }
  std::vector<std::vector<double>> v;
  for (std::int64_t i = 0; i < rows; ++i) v.emplace_back(&x[i * cols], &x[i * cols] + cols);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    return sum;
  };
  constexpr int kSweeps = 15;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      for (std::size_t j = i + 1; j < v.size(); ++j) {
        const double together = dot(v[i], v[j]);
        if (together == 0) continue;
        const double zeta = (dot(v[j], v[j]) - dot(v[i], v[i])) / (2 * together);
        const double t = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::hypot(1, zeta));
        const double c = 1 / std::hypot(1, t);
        for (std::size_t k = 0; k < v[i].size(); ++k) {
          const double old = v[i][k];
          v[i][k] = c * old - c * t * v[j][k];
          v[j][k] = c * t * old + c * v[j][k];
        }
      }
    }
  }
  std::vector<double> values;
  for (const auto& row : v) values.push_back(std::sqrt(dot(row, row)));
  return values;
}

struct GoldenCase {
  std::string_view name;
  std::int64_t rows, cols;
  bool nesterov;
  double update_scale;
  std::span<const float> after;
};

TEST_P(MuonTest, ThreeStepsFollowTorch) {
  const GoldenCase cases[] = {
      {"wide", 8, 24, true, 1, golden::kWide},
      {"tall", 24, 8, true, std::sqrt(24.0 / 8), golden::kTall},
      {"square", 12, 12, true, 0.2 * std::sqrt(12.0), golden::kSquare},
      {"heavyball", 6, 20, false, 0.2 * std::sqrt(20.0), golden::kHeavyball}};
  ThreadTeam team(2);
  for (const GoldenCase& c : cases) {
    std::vector<float> p = hashed(1, c.after.size());
    std::vector<float> buffer(p.size());
    std::vector<double> momentum(p.size());
    double bound = 0;
    for (std::uint32_t step = 1; step <= 3; ++step) {
      // A scale of the gradient that its own inverse undoes.
      std::vector<float> g = hashed(10000 * step, p.size());
      for (float& value : g) value *= 4;
      const MuonOptions options{.lr = 0.1,
                                .momentum = 0.95,
                                .nesterov = c.nesterov,
                                .weight_decay = 0.5,
                                .update_scale = c.update_scale,
                                .gradient_scale = 0.25};
      muon_step(team, options, c.rows, c.cols, p.data(), g.data(), buffer.data());
      for (std::size_t i = 0; i < p.size(); ++i) {
        momentum[i] = 0.95 * momentum[i] + 0.05 * 0.25 * static_cast<double>(g[i]);
      }
      // The update's norm is that of orthonormal rows or columns.
      bound += kBf16Error * options.lr * c.update_scale *
               std::sqrt(static_cast<double>(std::min(c.rows, c.cols)));
    }
    for (std::size_t i = 0; i < p.size(); ++i) {
      // Three roundings a step of values below 1.
      EXPECT_NEAR(static_cast<double>(buffer[i]), momentum[i], 9 * kFloatEpsilon);
    }
    const double error = distance(p, c.after);
    EXPECT_LE(error, bound) << c.name;
    std::printf("%.*s: error %.2f of the bound\n", static_cast<int>(c.name.size()), c.name.data(),
                error / bound);
  }
}

TEST_P(MuonTest, SingularValuesComeNearOne) {
  ThreadTeam team(2);
  // Of a random matrix twice as long as wide the smallest singular value is far above 2e-3 of the
  // norm, from where five steps reach the band (0.68 to 1.13 in exact arithmetic).
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 7},    {16, 33},  {33, 16}, {48, 144},
                                                          {144, 48}, {64, 130}, {5, 200}};
  for (const auto& [rows, cols] : shapes) {
    const std::vector<float> g = normal_values<float>(rows * cols, 1);
    for (const double s : singular_values(rows, cols, orthogonalized(team, rows, cols, g))) {
      EXPECT_GE(s, 0.68 * (1 - 0.03)) << rows << " x " << cols;
      EXPECT_LE(s, 1.13 * (1 + 0.03)) << rows << " x " << cols;
    }
  }
}

TEST_P(MuonTest, OfADiagonalMatrixItIsThePolynomialFiveTimes) {
  ThreadTeam team(1);
  constexpr std::int64_t kSize = 6;
  const double diagonal[kSize] = {1, 0.7, -0.5, 0.25, 0.1, 0.03};
  std::vector<float> g(kSize * kSize);
  double squares = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    g[i * kSize + i] = static_cast<float>(diagonal[i]);
    squares += diagonal[i] * diagonal[i];
  }
  const std::vector<float> o = orthogonalized(team, kSize, kSize, g);
  for (std::size_t i = 0; i < kSize; ++i) {
    double x = diagonal[i] / std::sqrt(squares);
    for (int step = 0; step < 5; ++step) {
      x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
    }
    EXPECT_NEAR(static_cast<double>(o[i * kSize + i]), x, kBf16Error);
    for (std::size_t j = 0; j < kSize; ++j) {
      if (j != i) {
        EXPECT_EQ(o[i * kSize + j], 0.0f);
      }
    }
  }
}

TEST_P(MuonTest, TheTransposeHasTheTransposedUpdate) {
  ThreadTeam team(2);
  constexpr std::int64_t kRows = 24, kCols = 72;
  const std::vector<float> g = normal_values<float>(kRows * kCols, 1);
  const std::vector<float> wide = orthogonalized(team, kRows, kCols, g);
  const std::vector<float> tall = orthogonalized(team, kCols, kRows, transposed(g, kRows, kCols));
  EXPECT_LE(distance(transposed(tall, kCols, kRows), wide), kBf16Error * std::sqrt(kRows));
}

TEST_P(MuonTest, BitsDoNotDependOnTheTeam) {
  constexpr std::int64_t kRows = 130, kCols = 70;
  const std::vector<float> g = normal_values<float>(kRows * kCols, 1);
  const auto run = [&](int size) {
    ThreadTeam team(size);
    std::vector<float> p = normal_values<float>(kRows * kCols, 2);
    std::vector<float> buffer = normal_values<float>(kRows * kCols, 3);
    muon_step(team, {.lr = 0.1, .weight_decay = 0.1}, kRows, kCols, p.data(), g.data(),
              buffer.data());
    p.insert(p.end(), buffer.begin(), buffer.end());
    return p;
  };
  const std::vector<float> expected = run(1);
  for (const int size : kTeamSizes) EXPECT_EQ(run(size), expected) << "team of " << size;
}

TEST_P(MuonTest, WithoutGradientOnlyDecays) {
  ThreadTeam team(1);
  std::vector<float> p(6, 2.0f);
  std::vector<float> buffer(6);
  const std::vector<float> g(6);
  muon_step(team, {.lr = 0.5, .weight_decay = 0.5}, 2, 3, p.data(), g.data(), buffer.data());
  EXPECT_EQ(p, std::vector<float>(6, 1.5f));
  EXPECT_EQ(buffer, g);
}

}  // namespace
}  // namespace isthmus::kernels
