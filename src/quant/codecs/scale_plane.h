// SPDX-License-Identifier: Apache-2.0
// The scales of a tile's blocks as bytes, in the forms of docs/internals/codecs.md. The encoder
// quantises with the decoded scales. A NaN scale marks a block with a NaN or an infinity; readers
// reject it. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isthmus/codec.h"

namespace isthmus {

enum class ScaleForm : std::uint8_t {
  kFp32,   // 4 bytes per block
  kFp16,   // one byte for the tile's power of two, then 2 bytes per block
  kE8M0,   // one byte per block, powers of two
  kE4M3,   // one fp32 per tile, then one byte per block (NVFP4)
  kRange,  // two fp32 per block: low, step
};

[[nodiscard]] constexpr std::size_t scale_bytes(ScaleForm form, std::size_t blocks) {
  if (blocks == 0) return 0;
  switch (form) {
    case ScaleForm::kFp32:
      return 4 * blocks;
    case ScaleForm::kFp16:
      return 1 + 2 * blocks;
    case ScaleForm::kE8M0:
      return blocks;
    case ScaleForm::kE4M3:
      return 4 + blocks;
    case ScaleForm::kRange:
      break;
  }
  return 8 * blocks;
}

/// Largest scale s for which s * top is finite.
[[nodiscard]] float largest_scale(float top);

/// Encodes ideal scales (NaN, or 0 <= s <= largest_scale(top); kE8M0: powers of two or zero), and
/// replaces them by the decoded ones. kRange: pairs. REQUIRES: out.size() == scale_bytes.
void write_scales(ScaleForm form, float top, std::span<float> scales, std::span<std::byte> out);

/// RETURNS: DecodeError naming the block whose scale no encoder makes from finite values.
[[nodiscard]] Expected<void, DecodeError> read_scales(ScaleForm form, float top,
                                                      std::span<const std::byte> bytes,
                                                      std::span<float> scales);

}  // namespace isthmus
