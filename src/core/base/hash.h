// SPDX-License-Identifier: Apache-2.0
// Digests and checksums: SHA-256 for files people compare by hand and for checkpoints (libsodium),
// XXH3-128 for results that machines compare every round (xxHash), CRC-32C for frames (own; the
// SSE4.2 instruction where the CPU has it). Functions are pure; objects belong to one thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace isthmus {

class Storage;

/// SHA-256 of a stream of bytes.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  /// 64 lower-case hexadecimal digits of everything so far. Ends the stream: call once.
  [[nodiscard]] std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);

/// XXH3-128 in its canonical (big-endian) byte order, so that comparison and text agree.
struct Digest128 {
  std::array<std::uint8_t, 16> bytes{};
  auto operator<=>(const Digest128&) const = default;
  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const;
};
[[nodiscard]] Digest128 xxh3_128(std::span<const std::byte> bytes);

/// XXH3-128 of a stream of bytes; `digest` may be taken at any point.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] Digest128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78); "123456789" gives 0xE3069283.
/// `crc` continues an earlier result: crc32c(b, crc32c(a)) is the checksum of a then b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// The checksum of `from`, which is copied to `to` in the same pass: each byte is loaded once.
/// REQUIRES: to.size() == from.size(), no overlap.
[[nodiscard]] std::uint32_t crc32c_copy(std::span<const std::byte> from, std::span<std::byte> to,
                                        std::uint32_t crc = 0);

namespace detail {
/// The implementations behind `crc32c`, for tests and benchmarks.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc);
/// REQUIRES: crc32c_has_hardware().
[[nodiscard]] std::uint32_t crc32c_hardware(std::span<const std::byte> bytes, std::uint32_t crc);
/// The same without carry-less products, which not every such processor has.
/// REQUIRES: crc32c_has_hardware().
[[nodiscard]] std::uint32_t crc32c_lanes(std::span<const std::byte> bytes, std::uint32_t crc);
[[nodiscard]] bool crc32c_has_hardware();
}  // namespace detail

}  // namespace isthmus
