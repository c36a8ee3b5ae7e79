// SPDX-License-Identifier: Apache-2.0
#include "core/state/own_pages.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace isthmus {

OwnPages::OwnPages(std::size_t size) : size_(size) {
  if (size == 0) return;
  void* const at = ::mmap(nullptr, size * sizeof(float), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<float*>(at);
}

OwnPages::~OwnPages() {
  if (data_ != nullptr) ::munmap(data_, size_ * sizeof(float));
}

OwnPages::OwnPages(OwnPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

OwnPages& OwnPages::operator=(OwnPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace isthmus
