// SPDX-License-Identifier: Apache-2.0
// Temporary arrays in separate pages, which return to the system when the array is freed; the
// allocator would keep them for the program's life (core/base/freed_memory.h). For large and rare
// arrays; their pages are cleared each time.
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
