// SPDX-License-Identifier: Apache-2.0
// A projected gradient as one byte: a sign bit and k in 1 .. 127, magnitude 2^((k - 64) / 8) S; 0
// is zero. Steps of 9.05 %, so at most 4.5 % off; range S 2^-7.875 .. S 2^7.875. S = 2^j is a
// constant of the run. Encoding compares with thresholds, decoding looks up: neither calls a
// logarithm, so both have the same bits on every machine.
#pragma once

#include <cstdint>

namespace isthmus::kernels {

/// j of S = 2^j lies in -kMostSpsaScale .. kMostSpsaScale.
inline constexpr int kMostSpsaScale = 64;

/// 0 for zero and for values that are not finite; magnitudes out of range get the nearest code.
[[nodiscard]] std::uint8_t spsa_encode(float g, int scale_log2);
/// sgn(g) S; 0 for zero and for values that are not finite.
[[nodiscard]] std::uint8_t spsa_encode_sign(float g);

/// The exact value in units of S 2^-31, as SpsaEntry::d.
[[nodiscard]] std::int64_t spsa_decode_q31(std::uint8_t code);
/// The same as a float, times S.
[[nodiscard]] float spsa_decode(std::uint8_t code, int scale_log2);

}  // namespace isthmus::kernels
