// SPDX-License-Identifier: Apache-2.0
// An input of a fuzz target as choices, one after another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isthmus::fuzzing {

/// Zeros behind the input's end.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool over() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_[0]);
    bytes_ = bytes_.subspan(1);
    return value;
  }
  int below(int n) { return byte() % n; }
  bool one_in(int n) { return byte() % n == 1; }
  std::vector<std::byte> some() {
    const std::size_t wanted = byte();  // read before the rest is counted
    std::vector<std::byte> taken(std::min(wanted, bytes_.size()));
    std::copy_n(bytes_.begin(), taken.size(), taken.begin());
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  /// Small mostly, and anything.
  std::uint64_t number() {
    const std::uint8_t first = byte();
    return first < 250 ? first % 16 : std::uint64_t{byte()} << (8 * (first - 248));
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace isthmus::fuzzing
