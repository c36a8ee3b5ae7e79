// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the SSE4.2 instruction: eight bytes in three cycles of latency, one a cycle of
// throughput, so three independent streams of kLane bytes run side by side and are joined by
// advancing the first two over the bytes behind them (a linear map, kept as four byte tables).
#include <nmmintrin.h>

#include <array>
#include <cstring>

#include "core/base/hash.h"

namespace isthmus::detail {
namespace {

constexpr std::size_t kLane = 1024;

using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

// The checksum register after kLane zero bytes is linear in the register before.
Shift make_shift() {
  std::array<std::uint32_t, 32> column{};
  for (int bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t step = 0; step < 8 * kLane; ++step) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    column[static_cast<std::size_t>(bit)] = crc;
  }
  Shift shift{};
  for (std::size_t part = 0; part < 4; ++part) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::uint32_t sum = 0;
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) sum ^= column[8 * part + bit];
      }
      shift[part][byte] = sum;
    }
  }
  return shift;
}

std::uint32_t over_lane(const Shift& shift, std::uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
         shift[3][crc >> 24];
}

std::uint64_t word(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

bool crc32c_has_hardware() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(std::span<const std::byte> bytes,
                                                                std::uint32_t crc) {
  static const Shift shift = make_shift();
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t a = ~crc;
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, word(at + i));
      b = _mm_crc32_u64(b, word(at + kLane + i));
      c = _mm_crc32_u64(c, word(at + 2 * kLane + i));
    }
    a = over_lane(shift, static_cast<std::uint32_t>(a)) ^ b;
    a = over_lane(shift, static_cast<std::uint32_t>(a)) ^ c;
  }
  for (; left >= 8; left -= 8, at += 8) a = _mm_crc32_u64(a, word(at));
  auto tail = static_cast<std::uint32_t>(a);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<std::uint8_t>(*at));
  return ~tail;
}

}  // namespace isthmus::detail
