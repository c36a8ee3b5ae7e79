// SPDX-License-Identifier: Apache-2.0
#include "kernels/muon.h"

#include <span>

#include "kernels/kernel_test.h"
#include "kernels/muon_case.h"

namespace isthmus::kernels::this_file {
namespace {

using MuonTest = IsaTest;
ISTHMUS_EVERY_ISA(MuonTest);

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

TEST_P(MuonTest, ThreeStepsFollowTorch) {
  ThreadTeam team(2);
  for (const GoldenCase& c : golden_cases()) {
    std::vector<float> p = hashed(1, c.after.size());
    std::vector<float> buffer(p.size());
    std::vector<double> momentum(p.size());
    double bound = 0;
    for (std::uint32_t step = 1; step <= 3; ++step) {
      // A scale of the gradient that its own inverse undoes.
      std::vector<float> g = hashed(10000 * step, p.size());
      for (float& value : g) value *= 4;
      MuonOptions options = c.options();
      options.gradient_scale = 0.25;
      muon_step(team, options, c.rows, c.cols, p.data(), g.data(), buffer.data());
      for (std::size_t i = 0; i < p.size(); ++i) {
        momentum[i] = 0.95 * momentum[i] + 0.05 * 0.25 * static_cast<double>(g[i]);
      }
      bound += c.error_of_a_step();
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
  // norm, from where five steps reach the band.
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 7},    {16, 33},  {33, 16}, {48, 144},
                                                          {144, 48}, {64, 130}, {5, 200}};
  for (const auto& [rows, cols] : shapes) {
    const std::vector<float> g = normal_values<float>(rows * cols, 1);
    for (const double s : singular_values(rows, cols, orthogonalized(team, rows, cols, g))) {
      EXPECT_GE(s, kLeastSingular * (1 - kSingularError)) << rows << " x " << cols;
      EXPECT_LE(s, kMostSingular * (1 + kSingularError)) << rows << " x " << cols;
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
}  // namespace isthmus::kernels::this_file
