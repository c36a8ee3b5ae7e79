// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/device_product.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/base/rng.h"
#include "kernels/cuda/matmul.h"

namespace isthmus {
namespace {

constexpr std::int64_t kSmallest = 128, kLargest = 8192;  // rows and columns
constexpr double kEnough = 2e-3;                          // seconds of one product
constexpr int kProductRepetitions = 10;

/// Zeros would let a device run faster than it does on a model's values.
template <typename T>
std::vector<T> random_values(std::size_t n) {
  constexpr std::size_t kDrawn = 1 << 20;
  const Rng rng{0, Stream::kTestData};
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = i < kDrawn ? T(static_cast<float>(rng.uniform(i) - 0.5)) : values[i - kDrawn];
  }
  return values;
}

template <typename T>
double measure(const Clock& clock) {
  cuda::Stream stream;
  cuda::Blas blas;
  double best = 0;
  // Emulated devices take long for work that real devices do at once.
  double seconds = 0;
  for (std::int64_t n = kSmallest; n <= kLargest && seconds < kEnough; n *= 2) {
    const auto values = static_cast<std::size_t>(n * n);
    const cuda::DeviceArray<T> a(values), b(values), c(values);
    const std::vector<T> random = random_values<T>(values);
    cuda::copy(stream, a.data(), random.data(), values);
    cuda::copy(stream, b.data(), random.data(), values);
    const cuda::Matmul product{.m = n,
                               .n = n,
                               .k = n,
                               .a = a.data(),
                               .b = b.data(),
                               .lda = n,
                               .ldb = n,
                               .ldc = n,
                               .c = c.data()};
    const auto time = [&] {
      const TimePoint begin = clock.now();
      blas.matmul(stream, product);
      stream.synchronize();
      return in_seconds(clock.now() - begin);
    };
    seconds = time();  // chooses the algorithm too
    for (int i = 0; i < kProductRepetitions; ++i) seconds = std::min(seconds, time());
    const double edge = static_cast<double>(n);
    best = std::max(best, 2 * edge * edge * edge / seconds);
  }
  return best;
}

}  // namespace

double device_product_flops(bool bf16, const Clock& clock) {
  return bf16 ? measure<cuda::Bf16>(clock) : measure<float>(clock);
}

std::string device_products_missing() { return cuda::products_missing(); }

std::string device_products_version() { return cuda::products_version(); }

}  // namespace isthmus
