// SPDX-License-Identifier: Apache-2.0
// The cosine transform of dct-topk: orthonormal DCT-II over rows and columns of 64 x 64 values for
// a whole tile; over each full row of 64 alone in a shorter one, whose last n mod 64 values stay as
// they are. Everything is divided by 64 on the way in and multiplied on the way out, so that no
// coefficient of finite values overflows; powers of two, so only subnormals notice.
// DETERMINISM: fixed table, fixed order, one rounding each: the same bits on every machine.
#pragma once

#include <span>

namespace isthmus {

/// A coefficient that is no number is the NaN of with_one_nan().
/// REQUIRES: in.size() == out.size() <= kTileValues, no overlap.
void cosine_transform(std::span<const float> in, std::span<float> out);
/// Results are clamped to the largest float; coefficients that no values have may give NaN.
void inverse_cosine_transform(std::span<const float> in, std::span<float> out);

/// What both multiply by, 64 x 64 row-major each: the forward transform, row u over places i, then
/// its transpose. Static.
[[nodiscard]] std::span<const float> cosine_matrices();

}  // namespace isthmus
