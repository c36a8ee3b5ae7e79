// SPDX-License-Identifier: Apache-2.0
#include "kernels/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace isthmus::kernels {
namespace {
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }
}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const std::size_t size = round_up(bytes, kCacheLine);
  if (posix_memalign(&data_, alignment, size) != 0) {
    data_ = nullptr;
    throw std::bad_alloc();
  }
  bytes_ = size;
  // Advice only: a kernel without transparent huge pages refuses, and small pages serve as well.
  // The end of the buffer has small pages: a huge one would hold up to 2 MiB beyond the requested
  // size.
  const std::size_t huge = size / kHugePage * kHugePage;
  if (huge > 0) static_cast<void>(madvise(data_, huge, MADV_HUGEPAGE));
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void AlignedBuffer::grow(std::size_t bytes) {
  if (bytes <= bytes_) return;
  *this = AlignedBuffer();  // gives the old block back before asking for the larger one
  *this = AlignedBuffer(bytes);
}

}  // namespace isthmus::kernels
