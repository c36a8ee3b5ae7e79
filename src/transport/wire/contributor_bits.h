// SPDX-License-Identifier: Apache-2.0
// The contributors of a part of a mean, as bits before its bytes (WIRE_FORMAT.md). Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace isthmus {

/// Bytes of a result's contributor bits.
[[nodiscard]] inline std::size_t bitmap_bytes(int members) {
  return (static_cast<std::size_t>(members) + 7) / 8;
}

inline void write_bitmap(const std::vector<bool>& bits, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  for (std::size_t m = 0; m < bits.size(); ++m) {
    if (bits[m]) {
      out[m / 8] |= static_cast<std::byte>(1u << (m % 8));
    }
  }
}

[[nodiscard]] inline std::vector<bool> read_bitmap(std::span<const std::byte> in, int members) {
  std::vector<bool> bits(static_cast<std::size_t>(members));
  for (std::size_t m = 0; m < bits.size(); ++m) {
    bits[m] = (in[m / 8] & static_cast<std::byte>(1u << (m % 8))) != std::byte{0};
  }
  return bits;
}

}  // namespace isthmus
