// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic of the codecs: one value or one block scale at a time. Every implementation of
// codec_kernels.h must give these bits. Integer operations and correctly rounded ones only.
//
// For host and device. Functions are `static`: files with other -m flags include this header, and
// with external inline linkage the linker could keep an AVX-512 copy for a machine that has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace isthmus {

ISTHMUS_HOST_DEVICE static constexpr std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
ISTHMUS_HOST_DEVICE static constexpr float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

inline constexpr std::uint32_t kAbsMask = 0x7FFF'FFFFu;
inline constexpr std::uint32_t kInfinityBits = 0x7F80'0000u;
inline constexpr std::uint32_t kQuietNanBits = 0x7FC0'0000u;

/// A NaN computed by arithmetic has different bits on each kind of machine (x86 keeps a payload or
/// sets the sign, a GPU sets all bits but the sign). An encoder passes computed values through this
/// function before it stores them; a copied NaN keeps its bits.
ISTHMUS_HOST_DEVICE static inline float with_one_nan(float value) {
  return (bits_of(value) & kAbsMask) > kInfinityBits ? float_of(kQuietNanBits) : value;
}

/// Round to nearest, ties to even; overflow goes to infinity, a NaN keeps its upper payload, quiet.
ISTHMUS_HOST_DEVICE static inline std::uint16_t bf16_of(float value) {
  const std::uint32_t u = bits_of(value);
  if ((u & kAbsMask) > kInfinityBits) {
    return static_cast<std::uint16_t>(u >> 16 | 0x40u);
  }
  return static_cast<std::uint16_t>((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
/// Exact.
ISTHMUS_HOST_DEVICE static inline float float_of_bf16(std::uint16_t code) {
  return float_of(static_cast<std::uint32_t>(code) << 16);
}

/// IEEE 754 binary16, round to nearest, ties to even; subnormals are kept, overflow goes to
/// infinity, a NaN keeps its upper payload, quiet.
ISTHMUS_HOST_DEVICE static inline std::uint16_t fp16_of(float value) {
  const std::uint32_t u = bits_of(value);
  const std::uint32_t sign = u >> 16 & 0x8000u;
  const std::uint32_t a = u & kAbsMask;
  std::uint32_t code = 0;
  if (a > kInfinityBits) {
    code = 0x7E00u | (a >> 13 & 0x1FFu);
  } else if (a >= 0x4780'0000u) {  // >= 2^16; values that only round up to 2^16 carry into
                                   // infinity below
    code = 0x7C00u;
  } else if (a >= 0x3880'0000u) {  // >= 2^-14: normal
    const std::uint32_t rebased = a - 0x3800'0000u;
    code = (rebased + 0xFFFu + (rebased >> 13 & 1u)) >> 13;
  } else {
    // Subnormal: adding 1/2 puts the unit 2^-24 into the last mantissa bit; the adder rounds.
    code = bits_of(float_of(a) + 0.5f) - 0x3F00'0000u;
  }
  return static_cast<std::uint16_t>(sign | code);
}
/// Exact; a NaN becomes quiet and keeps its payload.
ISTHMUS_HOST_DEVICE static inline float float_of_fp16(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000u) << 16;
  const std::uint32_t exponent = code >> 10 & 0x1Fu;
  const std::uint32_t mantissa = code & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return float_of(sign | bits_of(magnitude));
  }
  if (exponent == 0x1F) {
    const std::uint32_t quiet = mantissa == 0 ? 0u : 0x0040'0000u;
    return float_of(sign | kInfinityBits | quiet | mantissa << 13);
  }
  return float_of(sign | ((exponent + 112u) << 23 | mantissa << 13));
}

inline constexpr float kInt8Levels = 127.0f;
/// Between these a scale's reciprocal is normal, and x / scale can be computed by reciprocal and
/// FMA.
inline constexpr float kPlainScaleMin = 0x1p-100f;
inline constexpr float kPlainScaleMax = 0x1p+100f;

/// Clamp to -127 .. 127, then round to nearest even. REQUIRES: no NaN: a block with a NaN scale
/// gets zero codes without it. Adding 1.5 * 2^23 leaves the integer in the low mantissa
/// bits.
ISTHMUS_HOST_DEVICE static inline std::int8_t int8_of_quotient(float quotient) {
  const float low = quotient < -kInt8Levels ? -kInt8Levels : quotient;
  const float clamped = low > kInt8Levels ? kInt8Levels : low;
  const std::uint32_t shifted = bits_of(clamped + 0x1.8p23f);
  return static_cast<std::int8_t>(static_cast<std::int32_t>(shifted - 0x4B40'0000u));
}

}  // namespace isthmus
