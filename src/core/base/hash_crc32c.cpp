// SPDX-License-Identifier: Apache-2.0
// CRC-32C by tables (eight bytes a turn) and the choice between it and the CPU's instruction.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] advances the checksum of byte b over k further zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

namespace detail {

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(bytes[i]); };
  crc = ~crc;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    crc ^= at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^ kTables[5][(crc >> 16) & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][at(i + 4)] ^ kTables[2][at(i + 5)] ^
          kTables[1][at(i + 6)] ^ kTables[0][at(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ at(i)) & 0xff];
  return ~crc;
}

}  // namespace detail

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  static const bool hardware = detail::crc32c_has_hardware();
  return hardware ? detail::crc32c_hardware(bytes, crc) : detail::crc32c_portable(bytes, crc);
}

std::uint32_t crc32c_copy(std::span<const std::byte> from, std::span<std::byte> to,
                          std::uint32_t crc) {
  // Fits the first-level cache twice, and is whole turns of the interleaved loop.
  constexpr std::size_t kStep = 12 * 1024;
  ISTHMUS_CHECK(from.size() == to.size(), from.size(), to.size());
  for (std::size_t at = 0; at < from.size(); at += kStep) {
    const std::size_t n = std::min(kStep, from.size() - at);
    std::memcpy(to.data() + at, from.data() + at, n);
    crc = crc32c(to.subspan(at, n), crc);
  }
  return crc;
}

}  // namespace isthmus
