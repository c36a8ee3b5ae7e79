// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/index_coding.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr unsigned kPackedBits = 12;
constexpr unsigned kMostRice = 12;

std::size_t rice_bits(std::size_t n, std::size_t k, unsigned r) {
  return k * (r + 1) + ((n - k) >> r);
}

// Bits, low ones first, into bytes that start as zeros.
class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> out) : out_(out) { std::ranges::fill(out, std::byte{0}); }
  void put(std::uint32_t value, unsigned bits) {  // bits <= 24
    held_ |= static_cast<std::uint64_t>(value) << count_;
    count_ += bits;
    for (; count_ >= 8; count_ -= 8, held_ >>= 8) out_[at_++] = static_cast<std::byte>(held_);
  }
  void ones(std::size_t how_many) {
    for (; how_many > 16; how_many -= 16) put(0xFFFF, 16);
    put((1u << how_many) - 1, static_cast<unsigned>(how_many));
  }
  void finish() {
    if (count_ > 0) out_[at_++] = static_cast<std::byte>(held_);
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
  unsigned count_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  /// False past the end.
  bool get(unsigned bits, std::uint32_t& value) {  // bits <= 24
    fill();
    if (count_ < bits) return false;
    value = static_cast<std::uint32_t>(held_ & ((std::uint64_t{1} << bits) - 1));
    drop(bits);
    return true;
  }
  /// Ones up to the next zero, which is taken too.
  bool get_unary(std::size_t& ones) {
    for (ones = 0;;) {
      fill();
      const auto run = std::min(static_cast<unsigned>(std::countr_one(held_)), count_);
      ones += run;
      if (run < count_) {
        drop(run + 1);
        return true;
      }
      if (count_ == 0) return false;
      drop(run);
    }
  }
  /// True when only zeros are left.
  bool rest_is_zero() {
    if (held_ != 0) return false;
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), bytes_.end(),
                       [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  void fill() {
    for (; count_ <= 48 && at_ < bytes_.size(); count_ += 8) {
      held_ |= std::to_integer<std::uint64_t>(bytes_[at_++]) << count_;
    }
  }
  void drop(unsigned bits) {
    held_ >>= bits;
    count_ -= bits;
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
  unsigned count_ = 0;
};

}  // namespace

unsigned rice_parameter(std::size_t n, std::size_t k) {
  unsigned best = 0;
  for (unsigned r = 1; r <= kMostRice; ++r) {
    if (rice_bits(n, k, r) < rice_bits(n, k, best)) best = r;
  }
  return best;
}

std::size_t index_bytes(IndexCoding coding, std::size_t n, std::size_t k) {
  ISTHMUS_CHECK(k <= n, k, n);
  const std::size_t bits =
      coding == IndexCoding::kPacked12 ? k * kPackedBits : rice_bits(n, k, rice_parameter(n, k));
  return (bits + 7) / 8;
}

void write_indices(IndexCoding coding, std::size_t n, std::span<const std::uint16_t> indices,
                   std::span<std::byte> out) {
  ISTHMUS_CHECK(out.size() == index_bytes(coding, n, indices.size()), out.size());
  BitWriter writer(out);
  if (coding == IndexCoding::kPacked12) {
    for (const std::uint16_t index : indices) writer.put(index, kPackedBits);
  } else {
    const unsigned r = rice_parameter(n, indices.size());
    std::size_t next = 0;
    for (const std::uint16_t index : indices) {
      const std::size_t gap = index - next;
      writer.ones(gap >> r);
      writer.put(0, 1);
      writer.put(static_cast<std::uint32_t>(gap) & ((1u << r) - 1), r);
      next = index + std::size_t{1};
    }
  }
  writer.finish();
}

bool read_indices(IndexCoding coding, std::size_t n, std::span<const std::byte> bytes,
                  std::span<std::uint16_t> indices) {
  BitReader reader(bytes);
  const unsigned r = coding == IndexCoding::kRice ? rice_parameter(n, indices.size()) : 0;
  std::size_t next = 0;
  for (std::uint16_t& index : indices) {
    std::size_t value = 0;
    std::uint32_t low = 0;
    if (coding == IndexCoding::kPacked12) {
      if (!reader.get(kPackedBits, low)) return false;
      value = low;
    } else {
      std::size_t high = 0;
      if (!reader.get_unary(high) || !reader.get(r, low)) return false;
      value = next + (high << r | low);
    }
    if (value < next || value >= n) return false;
    index = static_cast<std::uint16_t>(value);
    next = value + 1;
  }
  return reader.rest_is_zero();
}

}  // namespace isthmus
