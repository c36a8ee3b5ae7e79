// SPDX-License-Identifier: Apache-2.0
// Cuts arrays out of one block of memory. The same code first counts (no memory given) and later
// hands out pointers, so a plan of memory and its use cannot disagree.
#pragma once

#include <cstdint>

namespace isthmus {

template <typename Real>
class Carver {
 public:
  Carver() = default;  // counts only; take() gives null
  explicit Carver(Real* memory) : memory_(memory) {}

  /// The next `count` values, aligned to 64 bytes when the memory is.
  Real* take(std::int64_t count) {
    Real* array = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count + kStep - 1) / kStep * kStep;
    return array;
  }
  /// Values taken so far, gaps included.
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  static constexpr std::int64_t kStep = 64 / static_cast<std::int64_t>(sizeof(Real));
  Real* memory_ = nullptr;
  std::int64_t used_ = 0;
};

}  // namespace isthmus
