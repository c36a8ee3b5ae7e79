// SPDX-License-Identifier: Apache-2.0
// The scale of one block: computed from the block's statistics, encoded and decoded. For host and
// device; `static` for the reason given in codec_math.h. No NaN is an operand of arithmetic, since
// the result's bits differ between machines.
#pragma once

#include <cmath>

#include "quant/math/block_grids.h"

namespace isthmus {

ISTHMUS_HOST_DEVICE static inline bool is_finite(float x) {
  return (bits_of(x) & kAbsMask) < kInfinityBits;
}
ISTHMUS_HOST_DEVICE static inline bool is_nan(float x) {
  return (bits_of(x) & kAbsMask) > kInfinityBits;
}

// --- from a block's values ---

/// OCP MX: 2^(floor(log2 m) - exponent of the grid's largest value), m the block's largest
/// magnitude, given by its bits `largest`. At least 2^-127; 0 for m = 0; NaN if m is not finite.
ISTHMUS_HOST_DEVICE static inline float power_of_two_scale(std::uint32_t largest, float top) {
  if (largest >= kInfinityBits) return float_of(kQuietNanBits);
  if (largest == 0) return 0;
  const int top_exponent = static_cast<int>(bits_of(top) >> 23) - 127;
  const int exponent = static_cast<int>(largest >> 23) - top_exponent;
  return exponent <= 0 ? 0x1p-127f : float_of(static_cast<std::uint32_t>(exponent) << 23);
}

/// The mean, rounded to fp32, at most `most`; NaN if it is not finite.
ISTHMUS_HOST_DEVICE static inline float mean_scale(double mean, float most) {
  if (!(mean <= 0x1.fffffffffffffp1023)) return float_of(kQuietNanBits);
  return static_cast<float>(mean < static_cast<double>(most) ? mean : static_cast<double>(most));
}

inline constexpr float kTernaryThreshold = 0.612f;  // times the rms: least error for normally
                                                    // distributed values
ISTHMUS_HOST_DEVICE static inline float ternary_threshold(double rms) {
  if (!(rms <= 0x1.fffffffffffffp1023)) return float_of(kQuietNanBits);
  return kTernaryThreshold * static_cast<float>(rms);
}

/// (low, step) of a block with values from low to high; `largest`: bits of its largest magnitude.
/// step is NaN if a value is not finite. A subnormal step that was rounded down gets one unit more,
/// so that the largest value still fits.
ISTHMUS_HOST_DEVICE static inline void range_scale(float low, float high, std::uint32_t largest,
                                                   float* pair) {
  const double range = static_cast<double>(high) - static_cast<double>(low);
  const auto step = static_cast<float>(range / static_cast<double>(Uint8Grid::kTop));
  const bool short_of = step < 0x1p-126f && static_cast<double>(step) * 255 < range;
  const bool finite = largest < kInfinityBits;
  pair[0] = finite ? low : 0;
  pair[1] = !finite ? float_of(kQuietNanBits) : short_of ? float_of(bits_of(step) + 1) : step;
}

// --- to bytes and back ---

/// True if the scale is at least +0, and finite also when multiplied by the grid's largest value.
ISTHMUS_HOST_DEVICE static inline bool possible_scale(float scale, float top) {
  return bits_of(scale) < kInfinityBits && is_finite(scale * top);
}
ISTHMUS_HOST_DEVICE static inline bool possible_range(float low, float step) {
  return is_finite(low) && bits_of(step) < kInfinityBits;
}

// fp16 relative to a power of two, 2^(byte - bias): the byte is the exponent field of the tile's
// largest scale, so the largest relative scale is in [2^14, 2^15). Let P be the power of two of the
// largest scale: scales down to 2^-28 P keep full precision, and scales down to 2^-38 P are not
// zero, for values of any size.
inline constexpr int kFp16ScaleBias = 127 + 14;
ISTHMUS_HOST_DEVICE static inline unsigned fp16_scale_byte(float largest) {
  const unsigned byte = bits_of(largest) >> 23;
  return byte < 1 ? 1 : byte;
}
/// 2^(byte - bias).
ISTHMUS_HOST_DEVICE static inline double fp16_scale_unit(unsigned byte) {
  constexpr int kDoubleBias = 1023;
  return __builtin_bit_cast(
      double, static_cast<std::uint64_t>(static_cast<int>(byte) - kFp16ScaleBias + kDoubleBias)
                  << 52);
}
ISTHMUS_HOST_DEVICE static inline float float_of_fp16_scale(std::uint16_t code, double unit) {
  return static_cast<float>(static_cast<double>(float_of_fp16(code)) * unit);
}
ISTHMUS_HOST_DEVICE static inline std::uint16_t fp16_scale_of(float scale, double unit, float top) {
  if (is_nan(scale)) return fp16_of(float_of(kQuietNanBits));
  std::uint16_t code = fp16_of(static_cast<float>(static_cast<double>(scale) * (1 / unit)));
  if (!possible_scale(float_of_fp16_scale(code, unit), top)) --code;  // was rounded up too far
  return code;
}

inline constexpr float kLeastE8M0 = 0x1p-127f;  // byte 0
ISTHMUS_HOST_DEVICE static inline float float_of_e8m0(unsigned byte) {
  if (byte == 0xFF) return float_of(kQuietNanBits);
  return byte == 0 ? kLeastE8M0 : float_of(static_cast<std::uint32_t>(byte) << 23);
}
/// Exponent field of a power of two, zero or NaN: 0 for 2^-127 and for zero, 0xFF for NaN.
ISTHMUS_HOST_DEVICE static inline unsigned e8m0_of(float scale) {
  return bits_of(scale) >> 23 & 0xFF;
}

/// NVFP4's fp32 scale of a tile whose largest block scale is `most`. A subnormal scale that was
/// rounded down gets one unit more, so that `most` still fits.
ISTHMUS_HOST_DEVICE static inline float nvfp4_unit(float most) {
  const float unit = most / E4M3Grid::kTop;
  return unit < 0x1p-126f && unit * E4M3Grid::kTop < most ? float_of(bits_of(unit) + 1) : unit;
}

}  // namespace isthmus
