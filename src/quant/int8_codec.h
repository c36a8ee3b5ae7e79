// SPDX-License-Identifier: Apache-2.0
// int8: blocks of consecutive values share one fp32 scale, amax / 127. Layout: docs/codecs.md.
#pragma once

#include <memory>

#include "isthmus/codec.h"

namespace isthmus {

inline constexpr std::size_t kInt8DefaultBlock = 256;

/// REQUIRES: block is a power of two <= kTileValues, so that no scale spans a tile border.
[[nodiscard]] std::unique_ptr<const Codec> make_int8_codec(std::size_t block);

}  // namespace isthmus
