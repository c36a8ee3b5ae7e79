// SPDX-License-Identifier: Apache-2.0
// The bins of bucket_means.h, one value at a time, for host and device; `static` for the reason
// given in codec_math.h.
#pragma once

#include <cmath>
#include <cstddef>

#include "quant/math/scale_math.h"

namespace isthmus {

inline constexpr std::size_t kBins = 4;
inline constexpr double kBinsInSigmas = 6.0 / kBins;
inline constexpr std::size_t kBinTableBytes = kBins * sizeof(std::uint16_t);

/// Bin width from the sum of the squares of `count` centred values; 0: all values are equal, and
/// are in the bin of the mean.
ISTHMUS_HOST_DEVICE static inline double bin_width(double squares, std::size_t count) {
  const std::size_t freedom = count > 2 ? count - 1 : 1;
  return kBinsInSigmas * std::sqrt(squares / static_cast<double>(freedom));
}

/// Bin: the centred value in widths, rounded to nearest even, plus 2, clamped to 0 .. 3.
ISTHMUS_HOST_DEVICE static inline unsigned bin_of(float value, double mean, double width) {
  if (!(width > 0)) return 2;
  const double q = (static_cast<double>(value) - mean) / width;
  return q <= -1.5 ? 0 : q < -0.5 ? 1 : q <= 0.5 ? 2 : 3;
}

/// A finite mean, clamped, since rounding to bf16 could make it infinite.
ISTHMUS_HOST_DEVICE static inline std::uint16_t bin_entry(double mean) {
  constexpr std::uint16_t kLargestBf16 = 0x7F7F;
  const auto rounded = static_cast<float>(mean);
  const std::uint16_t code = bf16_of(rounded);
  if (!is_finite(rounded) || is_finite(float_of_bf16(code))) return code;
  return static_cast<std::uint16_t>((code & 0x8000u) | kLargestBf16);
}

}  // namespace isthmus
