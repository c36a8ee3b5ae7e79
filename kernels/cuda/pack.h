// SPDX-License-Identifier: Apache-2.0
// Adjacent values as one device access, converted to float and rounded back.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// v[0, kWidth) := p[0, kWidth). kWidth: 1, 4 or 8; p aligned to that many values (at most 16
/// bytes).
template <int kWidth>
__device__ inline void load_pack(const float* p, float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    v[0] = *p;
  } else {
    for (int i = 0; i < kWidth; i += 4) {
      const auto four = load_as<float4>(p + i);
      v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
  }
}

__device__ inline void unpack(std::uint32_t pair, float& low, float& high) {
  low = __uint_as_float(pair << 16);
  high = __uint_as_float(pair & 0xFFFF0000u);
}

template <int kWidth>
__device__ inline void load_pack(const Bf16* p, float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    v[0] = *p;
  } else if constexpr (kWidth == 4) {
    const auto pairs = load_as<uint2>(p);
    unpack(pairs.x, v[0], v[1]);
    unpack(pairs.y, v[2], v[3]);
  } else {
    static_assert(kWidth == 8);
    const auto pairs = load_as<uint4>(p);
    unpack(pairs.x, v[0], v[1]);
    unpack(pairs.y, v[2], v[3]);
    unpack(pairs.z, v[4], v[5]);
    unpack(pairs.w, v[6], v[7]);
  }
}

/// p[0, kWidth) := v, rounded if p is Bf16.
template <int kWidth>
__device__ inline void store_pack(float* p, const float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    *p = v[0];
  } else {
    for (int i = 0; i < kWidth; i += 4) {
      store_as(p + i, make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]));
    }
  }
}

template <int kWidth>
__device__ inline void store_pack(Bf16* p, const float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    *p = Bf16(v[0]);
  } else if constexpr (kWidth == 4) {
    store_as(p, make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3])));
  } else {
    static_assert(kWidth == 8);
    store_as(p, make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]),
                           bf16_pair(v[6], v[7])));
  }
}

/// True if accesses of `width` values fit an array whose rows begin `row` values apart. True for
/// null.
template <typename T>
[[nodiscard]] bool fits_packs(int width, const T* data, std::int64_t row) {
  const std::size_t bytes = width * sizeof(T) < 16 ? width * sizeof(T) : 16;
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 && row % width == 0;
}

}  // namespace isthmus::cuda
