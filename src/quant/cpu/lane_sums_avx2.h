// SPDX-License-Identifier: Apache-2.0
// The 16 fp64 lanes of block_kernels.h, for AVX2 with FMA, and also for AVX-512, where it is no
// slower: converting four floats from memory takes 1.5 operations, converting eight takes 2.67.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

struct LaneSums {
  __m256d lane[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                     _mm256_setzero_pd()};

  static __m256d widened(const float* at) { return _mm256_cvtps_pd(_mm_loadu_ps(at)); }
  // 16 magnitudes. Uses a fused product by one, since adders are busy with conversions.
  void add(const float* at) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    const __m256d one = _mm256_set1_pd(1);
    for (std::size_t k = 0; k < 4; ++k) {
      lane[k] = _mm256_fmadd_pd(_mm256_andnot_pd(sign, widened(at + 4 * k)), one, lane[k]);
    }
  }
  // 16 squares, which are exact, so fusing changes nothing.
  void add_square(const float* at) {
    for (std::size_t k = 0; k < 4; ++k) {
      const __m256d v = widened(at + 4 * k);
      lane[k] = _mm256_fmadd_pd(v, v, lane[k]);
    }
  }
  [[nodiscard]] double total() const {
    const __m256d four =
        _mm256_add_pd(_mm256_add_pd(lane[0], lane[2]), _mm256_add_pd(lane[1], lane[3]));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace
}  // namespace isthmus
