// SPDX-License-Identifier: Apache-2.0
// Softmax down the columns of transposed logits (rows: vocabulary, columns: tokens): each vector
// lane is a token, so no sum crosses lanes. Include after one of simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_math.h"

namespace isthmus::kernels {
namespace {

/// For each of `tokens` columns of `rows` rows (`ld` apart): the largest logit m, and the sum of
/// exp(logit - m). Rows are read in memory order; the state of the few columns stays in L1.
inline void column_softmax_sums(const float* logits, std::int64_t ld, std::int64_t rows,
                                std::int64_t tokens, float* top, float* sum) {
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t t = 0; t < tokens; t += Simd::kWidth) {
      const Simd::Mask mask = Simd::first(tokens - t);
      const Simd::V x = Simd::load(logits + j * ld + t, mask);
      Simd::store(top + t, j == 0 ? x : Simd::max(Simd::load(top + t, mask), x), mask);
    }
  }
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t t = 0; t < tokens; t += Simd::kWidth) {
      const Simd::Mask mask = Simd::first(tokens - t);
      const Simd::V x = Simd::load(logits + j * ld + t, mask);
      const Simd::V e = exp(Simd::sub(x, Simd::load(top + t, mask)));
      Simd::store(sum + t, j == 0 ? e : Simd::add(Simd::load(sum + t, mask), e), mask);
    }
  }
}

/// logit -> factor[t] exp(logit - top[t]), in place.
inline void column_softmax_gradient(float* logits, std::int64_t ld, std::int64_t rows,
                                    std::int64_t tokens, const float* top, const float* factor) {
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t t = 0; t < tokens; t += Simd::kWidth) {
      const Simd::Mask mask = Simd::first(tokens - t);
      float* x = logits + j * ld + t;
      const Simd::V e = exp(Simd::sub(Simd::load(x, mask), Simd::load(top + t, mask)));
      Simd::store(x, Simd::mul(Simd::load(factor + t, mask), e), mask);
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
