// SPDX-License-Identifier: Apache-2.0
// The cosine transform of dct-topk. Whole tile: orthonormal DCT-II over rows and columns of 64 x 64
// values. Shorter tile: over each full row of 64 only; the last n mod 64 values do not change.
// Values are divided by 64 before and multiplied after, so that no coefficient of finite values
// overflows; powers of two affect only subnormals. DETERMINISM: fixed table, fixed order, one
// rounding each: the same bits on every machine.
#pragma once

#include <span>

namespace isthmus {

/// A NaN coefficient becomes the NaN of with_one_nan(). REQUIRES: in.size() == out.size() <=
/// kTileValues, no overlap.
void cosine_transform(std::span<const float> in, std::span<float> out);
/// Results are clamped to the largest float; coefficients that no values can have may give NaN.
void inverse_cosine_transform(std::span<const float> in, std::span<float> out);

/// The matrices of both functions, 64 x 64 row-major each: the forward transform, row u over
/// positions i, then its transpose. Static.
[[nodiscard]] std::span<const float> cosine_matrices();

}  // namespace isthmus
