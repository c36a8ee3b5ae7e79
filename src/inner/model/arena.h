// SPDX-License-Identifier: Apache-2.0
// Cuts arrays out of one block of memory. The same code first counts (no memory given) and later
// hands out pointers, so a plan of memory and its use cannot disagree.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

class Carver {
 public:
  Carver() = default;  // counts only; take() gives null
  explicit Carver(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  /// Room for the next `count` values, aligned to 64 bytes when the memory is.
  template <typename T>
  T* take(std::int64_t count) {
    void* array = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + kStep - 1) / kStep * kStep;
    return static_cast<T*>(array);
  }
  /// Bytes taken so far, gaps included.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kStep = 64;
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace isthmus
