// SPDX-License-Identifier: Apache-2.0
// Little-endian fields of fixed width, one after another, with checks of the buffer's end. For the
// formats of WIRE_FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/check.h"

namespace isthmus {

class FieldWriter {
 public:
  explicit FieldWriter(std::span<std::byte> out) : out_(out) {}
  template <typename UInt>
  void put(UInt value) {
    static_assert(std::is_unsigned_v<UInt>);
    ISTHMUS_CHECK(out_.size() - at_ >= sizeof(UInt), out_.size(), at_);
    for (std::size_t i = 0; i < sizeof(UInt); ++i) {
      out_[at_++] = static_cast<std::byte>((value >> (8 * i)) & 0xffu);
    }
  }
  void put_bytes(std::span<const std::byte> bytes) {
    ISTHMUS_CHECK(out_.size() - at_ >= bytes.size(), out_.size(), at_, bytes.size());
    if (!bytes.empty()) std::memcpy(out_.data() + at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  void put_text(std::string_view text) {
    put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> in) : in_(in) {}
  template <typename UInt>
  [[nodiscard]] UInt get() {
    static_assert(std::is_unsigned_v<UInt>);
    std::uint64_t value = 0;
    const std::span<const std::byte> bytes = get_bytes(sizeof(UInt));
    for (std::size_t i = 0; i < sizeof(UInt); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<UInt>(value);
  }
  [[nodiscard]] std::span<const std::byte> get_bytes(std::size_t n) {
    ISTHMUS_CHECK(in_.size() - at_ >= n, in_.size(), at_, n);
    at_ += n;
    return in_.subspan(at_ - n, n);
  }
  [[nodiscard]] std::string get_text(std::size_t n) {
    const std::span<const std::byte> bytes = get_bytes(n);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
};

}  // namespace isthmus
