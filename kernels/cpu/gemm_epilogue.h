// SPDX-License-Identifier: Apache-2.0
// Operations on a tile of a matrix product after its sum: the epilogues of gemm.h, and the store,
// which rounds when C is Bf16. Include after one of simd_*.h.
#pragma once

#include <utility>

#include "kernels/cpu/simd_math.h"
#include "kernels/gemm.h"

namespace isthmus::kernels {
namespace {

/// The epilogues of a product.
enum Epilogue : unsigned { kBias = 1, kResidual = 2, kFactor = 4, kGelu = 8, kEpilogues = 16 };

inline unsigned epilogue_of(const Gemm<float>& g) {
  return (g.bias != nullptr ? kBias : 0u) | (g.residual != nullptr ? kResidual : 0u) |
         (g.factor == nullptr ? 0u : kFactor) | (g.gelu_out == nullptr ? 0u : kGelu);
}

/// One vector of C, stored as T, from the product x.
template <typename T, unsigned kWhich>
[[gnu::always_inline]] inline void finish_vector(const Gemm<float>& g, Simd::V x, std::int64_t i,
                                                 std::int64_t j, Simd::Mask mask) {
  const std::int64_t at = i * g.ldc + j;
  if constexpr ((kWhich & kBias) != 0) x = Simd::add(x, Simd::load(g.bias + j, mask));
  if constexpr ((kWhich & kResidual) != 0) {
    x = Simd::add(x, Simd::load(g.residual + i * g.ldr + j, mask));
  }
  if constexpr ((kWhich & kFactor) != 0) {
    x = Simd::mul(x, Simd::load(g.factor.as<T>() + at, mask));
  }
  if constexpr ((kWhich & kGelu) != 0) {
    const GeluPair gelu = gelu_pair(x);
    Simd::store(g.gelu_out.as<T>() + at, gelu.value, mask);
    x = gelu.slope;
  }
  Simd::store(g.c.as<T>() + at, x, mask);
}

/// Finishes a tile while it is in L1: its rows are at `tile`, `ld` apart, which may be C itself.
template <typename T, unsigned kWhich>
void finish_rows(const Gemm<float>& g, const float* tile, std::int64_t ld, std::int64_t i,
                 std::int64_t rows, std::int64_t j, std::int64_t columns) {
  for (const std::int64_t end = i + rows; i < end; ++i, tile += ld) {
#pragma GCC unroll 4
    for (std::int64_t from = 0; from < columns; from += Simd::kWidth) {
      const Simd::Mask mask = Simd::first(columns - from);
      finish_vector<T, kWhich>(g, Simd::load(tile + from, mask), i, j + from, mask);
    }
  }
}

using FinishFunction = void (*)(const Gemm<float>&, const float*, std::int64_t, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t);

template <typename T, std::size_t... kWhich>
FinishFunction finish_function(unsigned which, std::index_sequence<kWhich...> /*all*/) {
  constexpr FinishFunction kFunctions[] = {finish_rows<T, kWhich>...};
  return kFunctions[which];
}

/// The epilogues of g for a C stored as T.
template <typename T>
FinishFunction finish_function(const Gemm<float>& g) {
  return finish_function<T>(epilogue_of(g), std::make_index_sequence<kEpilogues>{});
}

inline void finish_whole_rows(const Gemm<float>& g, const float* tile, std::int64_t ld,
                              std::int64_t i, std::int64_t rows) {
  if (g.c.is_bf16()) {
    finish_function<Bf16>(g)(g, tile, ld, i, rows, 0, g.n);
  } else if (epilogue_of(g) != 0) {
    finish_function<float>(g)(g, tile, ld, i, rows, 0, g.n);
  }
}

}  // namespace
}  // namespace isthmus::kernels
