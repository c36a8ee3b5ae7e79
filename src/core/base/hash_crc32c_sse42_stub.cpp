// SPDX-License-Identifier: Apache-2.0
// For processors without the SSE4.2 instruction set: CRC-32C is always computed by tables.
#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus::detail {

bool crc32c_has_hardware() { return false; }

std::uint32_t crc32c_lanes(std::span<const std::byte> bytes, std::uint32_t crc) {
  return crc32c_hardware(bytes, crc);
}

std::uint32_t crc32c_hardware(std::span<const std::byte>, std::uint32_t) {
  ISTHMUS_CHECK(crc32c_has_hardware());
  return 0;
}

}  // namespace isthmus::detail
