// SPDX-License-Identifier: Apache-2.0
// Tests that run on the emulated device and, with the same expectations, on a real one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// Skips by name where there is no device.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!unavailable().empty()) GTEST_SKIP() << unavailable();
  }
};

/// Blocks.
template <typename T>
[[nodiscard]] DeviceArray<T> on_device(Stream& stream, const std::vector<T>& host) {
  DeviceArray<T> array(host.size());
  copy(stream, array.data(), host.data(), host.size());
  stream.synchronize();
  return array;
}

/// Blocks.
template <typename T>
[[nodiscard]] std::vector<T> on_host(Stream& stream, const DeviceArray<T>& array) {
  std::vector<T> host(array.size());
  copy(stream, host.data(), array.data(), array.size());
  stream.synchronize();
  return host;
}

/// Seeded normal values times `scale`.
[[nodiscard]] inline std::vector<float> normal_floats(std::size_t n, std::uint32_t sub,
                                                      double scale = 1) {
  const Rng rng(17, isthmus::Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * rng.normal(i, sub));
  return x;
}

template <typename T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace isthmus::cuda
