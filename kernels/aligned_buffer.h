// SPDX-License-Identifier: Apache-2.0
// Memory for kernels and activation arenas: aligned to a cache line. Large blocks are aligned to a
// huge page, and madvise requests huge pages for them, which saves most TLB misses. Move-only
// owner; contents are not initialised. One thread at a time.
#pragma once

#include <cstddef>

namespace isthmus::kernels {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// THROWS: std::bad_alloc.
  explicit AlignedBuffer(std::size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Grows to at least `bytes`; growing drops the contents.
  void grow(std::size_t bytes);

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace isthmus::kernels
