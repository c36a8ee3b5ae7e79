// SPDX-License-Identifier: Apache-2.0
// Guesses that bytes without a header are integers of 8 or 24 bits. Where a model's vocabulary has
// 65,536 ids, every pair of their bytes is an id, so nothing but such a guess refuses them.
// file_format.h says what a guess is. Pure functions; any thread.
#pragma once

#include <optional>

#include "data/file_format.h"
#include "data/guess_sample.h"

namespace isthmus {

/// Integers of 8 bits: low bytes are spread as high bytes are, and the same low bytes go with many
/// high ones.
[[nodiscard]] std::optional<ForeignFormat> eight_bit_integers(Bytes bytes);

/// Integers of 24 bits below 2^20, of either byte order: every third byte is small. meetings: how
/// alike the ids in even and odd places must be, as the share of equal pairs; u16 ids in turns of
/// three (pitch, velocity and time) are not.
inline constexpr double kAlikeIds = 0.8;
[[nodiscard]] std::optional<ForeignFormat> three_byte_integers(Bytes bytes,
                                                               double meetings = kAlikeIds);

}  // namespace isthmus
