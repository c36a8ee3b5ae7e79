// SPDX-License-Identifier: Apache-2.0
// Four floats, in the vector types of GCC and clang for every machine; simd_avx512.h explains the
// names. fma rounds twice here: a fused operation would be a library call.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "kernels/bf16.h"

namespace isthmus::kernels {
namespace {

struct Simd {
  typedef float V __attribute__((vector_size(16)));
  typedef std::int32_t Mask __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;

  static V zero() { return V{}; }
  static V set(float x) { return V{x, x, x, x}; }
  static V load(const float* p) {
    V x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(float* p, V x) { std::memcpy(p, &x, sizeof x); }
  static Mask first(std::int64_t n) {
    const std::int32_t bound = n >= 4 ? 4 : static_cast<std::int32_t>(n);
    return Mask{0, 1, 2, 3} < Mask{bound, bound, bound, bound};
  }
  static V load(const float* p, Mask m) {
    V x{};
    for (int i = 0; i < kWidth; ++i) {
      if (m[i] != 0) x[i] = p[i];
    }
    return x;
  }
  static void store(float* p, V x, Mask m) {
    for (int i = 0; i < kWidth; ++i) {
      if (m[i] != 0) p[i] = x[i];
    }
  }
  static Mask bits(std::uint32_t lanes) {
    const auto all = static_cast<std::int32_t>(lanes);
    const Mask one{1, 2, 4, 8};
    return (Mask{all, all, all, all} & one) == one;
  }
  static V load(const Bf16* p) { return V{p[0], p[1], p[2], p[3]}; }
  static void store(Bf16* p, V x) {
    for (int i = 0; i < kWidth; ++i) p[i] = Bf16(x[i]);
  }
  static V load(const Bf16* p, Mask m) {
    V x{};
    for (int i = 0; i < kWidth; ++i) {
      if (m[i] != 0) x[i] = p[i];
    }
    return x;
  }
  static void store(Bf16* p, V x, Mask m) {
    for (int i = 0; i < kWidth; ++i) {
      if (m[i] != 0) p[i] = Bf16(x[i]);
    }
  }
  static V select(Mask m, V yes, V no) { return m ? yes : no; }
  static Mask below(V x, V y) { return x < y; }

  static V add(V x, V y) { return x + y; }
  static V sub(V x, V y) { return x - y; }
  static V mul(V x, V y) { return x * y; }
  static V div(V x, V y) { return x / y; }
  static V reciprocal(V x) { return div(set(1.0f), x); }
  static V max(V x, V y) { return x > y ? x : y; }
  static V min(V x, V y) { return x < y ? x : y; }
  static V sqrt(V x) {
    return V{std::sqrt(x[0]), std::sqrt(x[1]), std::sqrt(x[2]), std::sqrt(x[3])};
  }
  static V fma(V x, V y, V z) { return x * y + z; }
  static V fnma(V x, V y, V z) { return z - x * y; }
  static V round(V x) {
    // Adding 1.5 * 2^23 leaves no bits below one; right for |x| < 2^22, which exponents are.
    const V big = set(12582912.0f);
    return (x + big) - big;
  }
  static V scale2(V x, V n) {
    const Mask whole = __builtin_convertvector(n, Mask);
    const Mask half = whole >> 1;
    return x * power_of_two(half) * power_of_two(whole - half);
  }
  static V round_bf16(V x) {
    Mask bits;
    std::memcpy(&bits, &x, sizeof bits);
    const Mask up = (bits + 0x7fff + ((bits >> 16) & 1)) & static_cast<std::int32_t>(0xffff0000);
    V rounded;
    std::memcpy(&rounded, &up, sizeof rounded);
    return x == x ? rounded : x + x;
  }
  static float sum(V x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static float largest(V x) {
    const float a = x[0] > x[1] ? x[0] : x[1];
    const float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }

 private:
  static V power_of_two(Mask n) {
    const Mask bits = (n + 127) << 23;
    V x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
};

struct Longs {
  typedef std::uint64_t V __attribute__((vector_size(16)));
  static constexpr V kLow = {0xffffffffU, 0xffffffffU};
  static constexpr int kWidth = 2;
  static V set(std::uint64_t x) { return V{x, x}; }
  static V count(std::uint64_t x) { return V{x, x + 1}; }
  static V load(const std::uint64_t* p) {
    V x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(std::uint64_t* p, V x) { std::memcpy(p, &x, sizeof x); }
  static V bit_xor(V x, V y, V z) { return x ^ y ^ z; }
  static V mul_low(V x, V y) { return (x & kLow) * (y & kLow); }
  static V high(V x) { return x >> 32; }
  static V join(V x, V y) { return (x & kLow) | y << 32; }
  static void store_by_turns(std::uint32_t* p, V x, V y) {
    for (int i = 0; i < kWidth; ++i) {
      for (const std::uint64_t pair : {x[i], y[i]}) {
        *p++ = static_cast<std::uint32_t>(pair);
        *p++ = static_cast<std::uint32_t>(pair >> 32);
      }
    }
  }
  static V add_where(std::uint32_t lanes, V x, V y) {
    const std::uint64_t bits = lanes;
    return x + (y & V{-(bits & 1), -(bits >> 1 & 1)});
  }
};

/// 4 x 4 block transposed: to[i * to_stride + j] = from[j * from_stride + i].
template <typename Row>
inline void transpose_block(const Row& row, float* to, std::int64_t to_stride) {
  for (int j = 0; j < 4; ++j) {
    const Simd::V values = row(j);
    for (int i = 0; i < 4; ++i) to[i * to_stride + j] = values[i];
  }
}

}  // namespace
}  // namespace isthmus::kernels
