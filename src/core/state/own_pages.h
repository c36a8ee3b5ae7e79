// SPDX-License-Identifier: Apache-2.0
// Values that are there for a short time, in pages of their own: these go back to the system with
// them, where the allocator would keep them for the program's life (core/base/freed_memory.h). For
// what is large and rare; its pages are cleared each time.
#pragma once

#include <cstddef>
#include <span>

namespace isthmus {

/// Floats that start as zeros. Move-only.
class OwnPages {
 public:
  OwnPages() = default;
  /// THROWS: std::bad_alloc.
  explicit OwnPages(std::size_t size);
  ~OwnPages();
  OwnPages(OwnPages&& other) noexcept;
  OwnPages& operator=(OwnPages&& other) noexcept;
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::span<float> span() const { return {data_, size_}; }

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace isthmus
