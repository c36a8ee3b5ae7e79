// SPDX-License-Identifier: Apache-2.0
// Ascending indices of a tile as bytes. Packed: 12 bits each. Rice (Golomb 1966, Rice 1979): gaps
// to the previous index, the lower r bits plain, the rest in unary. A Rice string always has the
// worst-case length, so that sizes are a function of (n, k): the gaps' sum is at most n - k, hence
// their unary parts have at most (n - k) / 2^r ones together. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isthmus {

enum class IndexCoding : std::uint8_t { kPacked12, kRice };

/// The r with the fewest bytes; a function of (n, k) alone.
[[nodiscard]] unsigned rice_parameter(std::size_t n, std::size_t k);
/// Number of bytes of k of n indices. REQUIRES: k <= n <= 4096.
[[nodiscard]] std::size_t index_bytes(IndexCoding coding, std::size_t n, std::size_t k);
/// REQUIRES: ascending indices below n; out.size() == index_bytes.
void write_indices(IndexCoding coding, std::size_t n, std::span<const std::uint16_t> indices,
                   std::span<std::byte> out);
/// RETURNS: false when the bytes are not ascending indices below n, or unused bits are set.
[[nodiscard]] bool read_indices(IndexCoding coding, std::size_t n, std::span<const std::byte> bytes,
                                std::span<std::uint16_t> indices);

}  // namespace isthmus
