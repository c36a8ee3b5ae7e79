// SPDX-License-Identifier: Apache-2.0
// Allocates arrays from one block of memory. The same code first counts (no memory given) and later
// returns pointers, so the plan of a block and its use cannot differ.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

class ArenaLayout {
 public:
  ArenaLayout() = default;  // counts only; take() returns null
  explicit ArenaLayout(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

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
