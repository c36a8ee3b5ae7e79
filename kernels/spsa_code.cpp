// SPDX-License-Identifier: Apache-2.0
#include "kernels/spsa_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/base/check.h"

namespace isthmus::kernels {
namespace {

constexpr int kMiddle = 64;  // k of magnitude S
constexpr int kPerOctave = 8;
constexpr std::uint8_t kSignBit = 0x80;

// fp32(2^(j / 8)) and the mantissas of the borders between codes, fp32(2^((j + 0.5) / 8)).
constexpr std::array<std::uint32_t, kPerOctave> kMagnitudes = {
    0x3f800000, 0x3f8b95c2, 0x3f9837f0, 0x3fa5fed7, 0x3fb504f3, 0x3fc5672a, 0x3fd744fd, 0x3feac0c7};
constexpr std::array<std::uint32_t, kPerOctave> kBorders = {
    0x3f85aac3, 0x3f91c3d3, 0x3f9ef532, 0x3fad583f, 0x3fbd08a4, 0x3fce248c, 0x3fe0ccdf, 0x3ff5257d};
constexpr std::uint32_t kOne = 0x3f800000;  // 1.0f
constexpr std::uint32_t kMantissa = 0x007fffff;

}  // namespace

std::uint8_t spsa_encode(float g, int scale_log2) {
  ISTHMUS_CHECK(scale_log2 >= -kMostSpsaScale && scale_log2 <= kMostSpsaScale, scale_log2);
  if (g == 0 || !std::isfinite(g)) {
    return 0;
  }
  const auto bits = std::bit_cast<std::uint32_t>(g);
  // Subnormal numbers come out as exponent -127, far below the smallest code of any scale.
  const int exponent = static_cast<int>((bits >> 23) & 0xffU) - 127 - scale_log2;
  const std::uint32_t mantissa = kOne | (bits & kMantissa);
  const auto above =
      std::ranges::count_if(kBorders, [&](std::uint32_t border) { return mantissa >= border; });
  const int k =
      std::clamp(kMiddle + kPerOctave * exponent + static_cast<int>(above), 1, 2 * kMiddle - 1);
  return static_cast<std::uint8_t>((std::signbit(g) ? kSignBit : 0) | k);
}

std::uint8_t spsa_encode_sign(float g) {
  if (g == 0 || !std::isfinite(g)) {
    return 0;
  }
  return static_cast<std::uint8_t>((std::signbit(g) ? kSignBit : 0) | kMiddle);
}

// The lowest bit of the smallest magnitude is 2^(-23 - 8) = 2^-31, so every shift is to the left.
std::int64_t spsa_decode_q31(std::uint8_t code) {
  const int k = code & (kSignBit - 1);
  if (k == 0) {
    return 0;
  }
  const int octave = (k - kMiddle) >> 3;  // floor: -8 .. 7
  const std::uint32_t bits = kMagnitudes[static_cast<std::size_t>((k - kMiddle) & 7)];
  const std::int64_t magnitude = std::int64_t{(bits & kMantissa) | (kMantissa + 1)} << (octave + 8);
  return (code & kSignBit) != 0 ? -magnitude : magnitude;
}

float spsa_decode(std::uint8_t code, int scale_log2) {
  return static_cast<float>(
      std::ldexp(static_cast<double>(spsa_decode_q31(code)), scale_log2 - 31));
}

}  // namespace isthmus::kernels
