// SPDX-License-Identifier: Apache-2.0
// Times of work on a CUDA device, beside a copy's in the same run, as JSON lines.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

inline constexpr std::size_t kCopyBytes = std::size_t{1} << 29;  // far more than the caches hold

struct CudaBenchOptions {
  std::string only;
  int device = 0;
  int repetitions = 20;
};

/// --only PREFIX, --device N, --repetitions N. Ends the process with exit code 2 for anything else.
[[nodiscard]] inline CudaBenchOptions parse_bench(std::string_view program, int argc, char** argv) {
  CudaBenchOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && flag == "--only") {
      options.only = value;
    } else if (value != nullptr && flag == "--device") {
      options.device = std::atoi(value);
    } else if (value != nullptr && flag == "--repetitions") {
      options.repetitions = std::max(1, std::atoi(value));
    } else {
      fmt::print(stderr, "usage: {} [--only PREFIX] [--device N] [--repetitions N]\n", program);
      std::exit(2);
    }
  }
  return options;
}

/// Makes the device of the options the thread's, and prints the line that names it. RETURNS: 0, or
/// the exit code where it is not there.
[[nodiscard]] inline int open_device(std::string_view program, const CudaBenchOptions& options) {
  if (const std::string why = unavailable(); !why.empty()) {
    fmt::print(stderr, "{}: {}\n", program, why);
    return 4;
  }
  const std::vector<DeviceInfo> all = devices();
  if (options.device < 0 || options.device >= static_cast<int>(all.size())) {
    fmt::print(stderr, "{}: --device {}: this machine has devices 0 to {}\n", program,
               options.device, all.size() - 1);
    return 2;
  }
  use_device(options.device);
  const DeviceInfo& device = all[static_cast<std::size_t>(options.device)];
  fmt::print("{{\"device\":\"{}\",\"compute\":\"{}.{}\",\"memory_bytes\":{}}}\n", device.name,
             device.compute_major, device.compute_minor, device.memory_bytes);
  return 0;
}

/// Zeros on the device.
template <typename T>
[[nodiscard]] DeviceArray<T> zeros(Stream& stream, std::int64_t n) {
  DeviceArray<T> array(static_cast<std::size_t>(n));
  fill_zero(stream, array.data(), array.size());
  return array;
}

/// Values in [-1, 1), the first millions over and over: a device that multiplies zeros draws less
/// power and runs faster.
[[nodiscard]] inline DeviceArray<kernels::Bf16> uniform(Stream& stream, std::int64_t n) {
  constexpr std::size_t kPeriod = (std::size_t{1} << 22) - 1;
  DeviceArray<kernels::Bf16> array(static_cast<std::size_t>(n));
  std::vector<kernels::Bf16> host(std::min(array.size(), kPeriod));
  std::uint32_t state = 1;
  for (kernels::Bf16& x : host) {
    state = state * 1664525u + 1013904223u;
    x = kernels::Bf16(static_cast<float>(static_cast<std::int32_t>(state)) / 2147483648.f);
  }
  for (std::size_t begin = 0; begin < array.size(); begin += host.size()) {
    const std::size_t count = std::min(host.size(), array.size() - begin);
    copy(stream, array.data() + begin, host.data(), count);
  }
  stream.synchronize();
  return array;
}

[[nodiscard]] inline std::string text(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{}x{}", rows, columns);
}

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

  /// more: further members of the line, each behind a comma.
  void product(std::string_view op, const std::string& shape, double flop,
               const std::function<void()>& queue, std::string_view more = "") {
    if (!wanted(op)) return;
    const double us = median_us(queue);
    fmt::print(
        "{{\"op\":\"{}\",\"shape\":\"{}\",\"us\":{:.2f},\"tflop_s\":{:.1f},\"repetitions\":{}{}}}"
        "\n",
        op, shape, us, flop / us / 1e6, options_.repetitions, more);
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
  Event begin_{Event::Timing::kOn}, end_{Event::Timing::kOn};
};

}  // namespace isthmus::cuda
