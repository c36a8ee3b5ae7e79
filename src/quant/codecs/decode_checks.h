// SPDX-License-Identifier: Apache-2.0
// What every codec checks before it touches a byte. Stateless; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "isthmus/codec.h"

namespace isthmus {

/// Holds the caller of Codec::encode to its REQUIRES.
void check_encode(const Codec& codec, std::span<const float> tile, std::span<const std::byte> out);

/// RETURNS: DecodeError when `bytes` cannot be the encoding of one tile of n values.
[[nodiscard]] Expected<void, DecodeError> check_decode_size(const Codec& codec,
                                                            std::span<const std::byte> bytes,
                                                            std::size_t n);

}  // namespace isthmus
