// SPDX-License-Identifier: Apache-2.0
// Arithmetic of one step of k in a matrix product. A step has kFold values of k, in one 32-bit lane
// of a packed operand; everything else (panels, tiles, plan) counts in steps.
//   Fp32Product      kFold 1, operands as they are
//   RoundedProduct   kFold 1, operands rounded to bfloat16 while they are packed
//   PairProduct      kFold 2, pairs of bfloat16 for vdpbf16ps (product_avx512_bf16.h)
// Operands in memory are T: float or Bf16. Include after one of simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace isthmus::kernels {
namespace {

struct Fp32Product {
  static constexpr std::int64_t kFold = 1;
  /// True: steps along a row of T are used as A in place.
  template <typename T>
  static constexpr bool kInPlace = std::is_same_v<T, float>;
  /// True: an A whose columns are contiguous in k is used in place.
  static constexpr bool kColumnsInPlace = true;
  static Simd::V multiply_add(Simd::V a, Simd::V b, Simd::V sum) { return Simd::fma(a, b, sum); }
  /// One step of adjacent columns: rows of k are `ld` apart, `rows` of kFold exist.
  template <typename T>
  static Simd::V across(const T* row, std::int64_t /*ld*/, std::int64_t /*rows*/,
                        Simd::Mask columns) {
    return Simd::load(row, columns);
  }
  template <typename T>
  static Simd::V across(const T* row, std::int64_t /*ld*/, std::int64_t /*rows*/) {
    return Simd::load(row);
  }
  /// kWidth steps along a row that is contiguous in k.
  template <typename T>
  static Simd::V along(const T* from) {
    return Simd::load(from);
  }
  /// One step of such a row, of which `values` of kFold exist.
  template <typename T>
  static float lane(const T* from, std::int64_t /*values*/) {
    return *from;
  }
};

struct RoundedProduct {
  static constexpr std::int64_t kFold = 1;
  template <typename T>
  static constexpr bool kInPlace = false;
  static constexpr bool kColumnsInPlace = false;
  static Simd::V multiply_add(Simd::V a, Simd::V b, Simd::V sum) { return Simd::fma(a, b, sum); }
  template <typename T>
  static Simd::V across(const T* row, std::int64_t /*ld*/, std::int64_t /*rows*/,
                        Simd::Mask columns) {
    return rounded<T>(Simd::load(row, columns));
  }
  template <typename T>
  static Simd::V across(const T* row, std::int64_t /*ld*/, std::int64_t /*rows*/) {
    return rounded<T>(Simd::load(row));
  }
  template <typename T>
  static Simd::V along(const T* from) {
    return rounded<T>(Simd::load(from));
  }
  template <typename T>
  static float lane(const T* from, std::int64_t /*values*/) {
    return Bf16(*from);
  }

 private:
  template <typename T>
  static Simd::V rounded(Simd::V x) {
    if constexpr (std::is_same_v<T, Bf16>) return x;
    return Simd::round_bf16(x);
  }
};

}  // namespace
}  // namespace isthmus::kernels
