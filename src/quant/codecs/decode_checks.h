// SPDX-License-Identifier: Apache-2.0
// Checks that every codec makes before it accesses a byte. Stateless; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "isthmus/codec.h"

namespace isthmus {

/// Checks the REQUIRES of Codec::encode.
void check_encode(const Codec& codec, std::span<const float> tile, std::span<const std::byte> out);

/// RETURNS: DecodeError when `bytes` cannot be the encoding of one tile of n values.
[[nodiscard]] Expected<void, DecodeError> check_decode_size(const Codec& codec,
                                                            std::span<const std::byte> bytes,
                                                            std::size_t n);

}  // namespace isthmus
