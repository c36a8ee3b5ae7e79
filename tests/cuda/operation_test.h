// SPDX-License-Identifier: Apache-2.0
// What tests of operations on a device share: values of both types, comparison with a result in
// double, the same bits for every order of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cuda/device_test.h"
#include "cuda/thread_orders.h"
#include "kernels/bf16.h"

namespace isthmus::cuda {

using kernels::Bf16;

inline constexpr double kFloatRounding = 1.0 / (1 << 24);
template <typename T>
inline constexpr double kRounding = std::is_same_v<T, Bf16> ? 1.0 / (1 << 8) : kFloatRounding;

template <typename T>
[[nodiscard]] std::vector<T> normal_of(std::int64_t n, std::uint32_t sub, double scale = 1) {
  const std::vector<float> x = normal_floats(static_cast<std::size_t>(n), sub, scale);
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(x[i]);
  return y;
}

template <typename T>
[[nodiscard]] std::vector<double> in_double(const std::vector<T>& x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = static_cast<double>(static_cast<kernels::RealOf<T>>(x[i]));
  }
  return y;
}

/// Each of `got` within relative |expected| + absolute of `expected`; reports the first that is
/// not.
template <typename T>
void expect_close(const std::vector<T>& got, const std::vector<double>& expected, double relative,
                  double absolute, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(got[i]));
    ASSERT_LE(std::abs(value - expected[i]), relative * std::abs(expected[i]) + absolute)
        << what << "[" << i << "] = " << value << ", expected " << expected[i];
  }
}

/// run() gives a struct of results with operator==, by bits; it is the same for every order of
/// threads. RETURNS: it.
template <typename Run>
[[nodiscard]] auto in_every_thread_order(const Run& run) {
  const std::vector<std::uint64_t> orders = thread_orders();
  use_thread_order(orders[0]);
  auto first = run();
  for (std::size_t i = 1; i < orders.size(); ++i) {
    use_thread_order(orders[i]);
    EXPECT_TRUE(run() == first) << "thread order " << orders[i];
  }
  use_thread_order(0);
  return first;
}

/// Results that are compared by bits.
template <typename T>
struct Bits {
  std::vector<T> values;
  bool operator==(const Bits& other) const { return same_bits(values, other.values); }
};

}  // namespace isthmus::cuda
