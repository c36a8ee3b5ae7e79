// SPDX-License-Identifier: Apache-2.0
// How values of k meet in a matrix product. A step of k takes kFold values, which lie together in
// one 32-bit lane of a packed operand; everything else (panels, tiles, plan) counts in steps.
//   Fp32Product      kFold 1, operands as they are
//   RoundedProduct   kFold 1, operands rounded to bfloat16 while they are packed
//   PairProduct      kFold 2, pairs of bfloat16 for vdpbf16ps (product_avx512_bf16.h)
// Include after one of simd_*.h.
#pragma once

#include <cstdint>

namespace isthmus::kernels {
namespace {

struct Fp32Product {
  static constexpr std::int64_t kFold = 1;
  static constexpr bool kPacksA = false;  // an A that is not transposed is read where it lies
  static Simd::V multiply_add(Simd::V a, Simd::V b, Simd::V sum) { return Simd::fma(a, b, sum); }
  /// One step of neighbouring columns: rows of k are `ld` apart, `rows` of kFold exist.
  static Simd::V across(const float* row, std::int64_t /*ld*/, std::int64_t /*rows*/,
                        Simd::Mask columns) {
    return Simd::load(row, columns);
  }
  static Simd::V across(const float* row, std::int64_t /*ld*/, std::int64_t /*rows*/) {
    return Simd::load(row);
  }
  /// kWidth steps along a row in which k runs.
  static Simd::V along(const float* from) { return Simd::load(from); }
  /// One step of such a row, of which `values` of kFold exist.
  static float lane(const float* from, std::int64_t /*values*/) { return *from; }
};

struct RoundedProduct {
  static constexpr std::int64_t kFold = 1;
  static constexpr bool kPacksA = true;
  static Simd::V multiply_add(Simd::V a, Simd::V b, Simd::V sum) { return Simd::fma(a, b, sum); }
  static Simd::V across(const float* row, std::int64_t /*ld*/, std::int64_t /*rows*/,
                        Simd::Mask columns) {
    return Simd::round_bf16(Simd::load(row, columns));
  }
  static Simd::V across(const float* row, std::int64_t /*ld*/, std::int64_t /*rows*/) {
    return Simd::round_bf16(Simd::load(row));
  }
  static Simd::V along(const float* from) { return Simd::round_bf16(Simd::load(from)); }
  static float lane(const float* from, std::int64_t /*values*/) {
    float lanes[Simd::kWidth];
    Simd::store(lanes, Simd::round_bf16(Simd::set(*from)));
    return lanes[0];
  }
};

}  // namespace
}  // namespace isthmus::kernels
