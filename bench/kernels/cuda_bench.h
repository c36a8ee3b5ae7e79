// SPDX-License-Identifier: Apache-2.0
// Times of work on a CUDA device, beside a copy's in the same run, as JSON lines.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus::cuda {

inline constexpr std::size_t kCopyBytes = std::size_t{1} << 29;  // far more than the caches hold

struct CudaBenchOptions {
  std::string only;
  int device = 0;
  int repetitions = 20;
};

/// Times operations and prints their lines.
class CudaBench {
 public:
  explicit CudaBench(const CudaBenchOptions& options)
      : options_(options), from_(kCopyBytes), to_(kCopyBytes) {
    fill_zero(stream, from_.data(), kCopyBytes);
  }

  /// bytes: that the operation must move.
  void memory(std::string_view op, const std::string& shape, std::size_t bytes,
              const std::function<void()>& queue) {
    if (!wanted(op)) return;
    const double copied = 2 * static_cast<double>(kCopyBytes) /
                          median_us([&] { copy(stream, to_.data(), from_.data(), kCopyBytes); }) /
                          1e3;
    const double us = median_us(queue);
    const double speed = static_cast<double>(bytes) / us / 1e3;
    fmt::print(
        "{{\"op\":\"{}\",\"shape\":\"{}\",\"us\":{:.2f},\"bytes\":{},\"gb_s\":{:.1f},"
        "\"copy_gb_s\":{:.1f},\"of_copy\":{:.3f},\"repetitions\":{}}}\n",
        op, shape, us, bytes, speed, copied, speed / copied, options_.repetitions);
    std::fflush(stdout);
  }

  void product(std::string_view op, const std::string& shape, double flop,
               const std::function<void()>& queue) {
    if (!wanted(op)) return;
    const double us = median_us(queue);
    fmt::print(
        "{{\"op\":\"{}\",\"shape\":\"{}\",\"us\":{:.2f},\"tflop_s\":{:.1f},\"repetitions\":{}}}\n",
        op, shape, us, flop / us / 1e6, options_.repetitions);
    std::fflush(stdout);
  }

  [[nodiscard]] bool wanted(std::string_view op) const {
    return op.substr(0, options_.only.size()) == options_.only;
  }

  Stream stream;

 private:
  double median_us(const std::function<void()>& queue) {
    constexpr int kWarmUps = 2;
    std::vector<double> us;
    for (int i = 0; i < kWarmUps + options_.repetitions; ++i) {
      begin_.record(stream);
      queue();
      end_.record(stream);
      end_.synchronize();
      if (i >= kWarmUps) us.push_back(1e3 * end_.milliseconds_since(begin_));
    }
    std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
    return us[us.size() / 2];
  }

  CudaBenchOptions options_;
  DeviceArray<std::byte> from_, to_;
  Event begin_, end_;
};

}  // namespace isthmus::cuda
