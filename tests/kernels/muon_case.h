// SPDX-License-Identifier: Apache-2.0
// What tests of Muon share, on the CPU and on a device: torch's steps, norms, singular values and
// what rounding to bfloat16 does to an update.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/golden/torch_muon.h"
#include "kernels/muon.h"

namespace isthmus::kernels {

// Rounding to bfloat16 errs by 2^-9 / sqrt(3) of a value on average. The terms a x, b x^3, c x^5 of
// a Newton-Schulz step are products of 1, 3, 5 rounded factors, so a step adds 2^-9 / sqrt(3)
// sqrt(a^2 + 3 b^2 + 5 c^2) = 0.011 of the norm; the four steps after it multiply that by the
// polynomial's slope on the band, about 1.3 each, which sums to 4.3 in squares. Two programs that
// round differently differ by sqrt(2) of it.
inline constexpr double kBf16Error = 0.011 * 4.3 * 1.42;
// Two that round at the same places and add in unlike orders differ where a sum comes to lie on the
// other side of a rounding, by 2^-8 of one operand, and in what the steps after it make of that:
// nothing in most small matrices, else up to an eighth of kBf16Error in tests/cuda on the emulated
// device.
inline constexpr double kFlipError = kBf16Error / 4;

// Of singular values after five steps in exact arithmetic, where those before are above 2e-3 of the
// norm; what rounding adds.
inline constexpr double kLeastSingular = 0.68, kMostSingular = 1.13, kSingularError = 0.03;

/// Uniform in [-1, 1): the same integer hash as golden/make_torch_muon.py.
[[nodiscard]] inline std::vector<float> hashed(std::uint32_t seed, std::size_t count) {
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

/// Three steps of torch.optim.Muon from hashed(1) by hashed(10000 step).
struct GoldenCase {
  std::string_view name;
  std::int64_t rows, cols;
  bool nesterov;
  double update_scale;
  std::span<const float> after;

  [[nodiscard]] MuonOptions options() const {
    return {.lr = 0.1,
            .momentum = 0.95,
            .nesterov = nesterov,
            .weight_decay = 0.5,
            .update_scale = update_scale};
  }
  /// The update's norm is that of orthonormal rows or columns.
  [[nodiscard]] double error_of_a_step() const {
    return kBf16Error * options().lr * update_scale *
           std::sqrt(static_cast<double>(std::min(rows, cols)));
  }
};
[[nodiscard]] inline std::vector<GoldenCase> golden_cases() {
  return {{"wide", 8, 24, true, 1, golden::kWide},
          {"tall", 24, 8, true, std::sqrt(24.0 / 8), golden::kTall},
          {"square", 12, 12, true, 0.2 * std::sqrt(12.0), golden::kSquare},
          {"heavyball", 6, 20, false, 0.2 * std::sqrt(20.0), golden::kHeavyball}};
}

[[nodiscard]] inline double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

[[nodiscard]] inline double distance(std::span<const float> x, std::span<const float> y) {
  std::vector<float> difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
  return norm(difference);
}

[[nodiscard]] inline std::vector<float> transposed(std::span<const float> x, std::int64_t rows,
                                                   std::int64_t cols) {
  std::vector<float> y;
  for (std::int64_t j = 0; j < cols; ++j) {
    for (std::int64_t i = 0; i < rows; ++i) y.push_back(x[static_cast<std::size_t>(i * cols + j)]);
  }
  return y;
}

/// Singular values by one-sided Jacobi rotations (Golub & Van Loan, 8.6.3) of the shorter side.
[[nodiscard]] inline std::vector<double> singular_values(std::int64_t rows, std::int64_t cols,
                                                         std::vector<float> x) {
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

}  // namespace isthmus::kernels
