// SPDX-License-Identifier: Apache-2.0
// Device memory with an owner, and CUDA errors as exceptions. For .cu files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace isthmus::kernels {

/// THROWS: SystemError naming the call and CUDA's text when `status` (a cudaError_t) is an error.
void cuda_check(int status, const char* call);

/// n floats of device memory, owned; neither copied nor moved.
class CudaBuffer {
 public:
  /// Allocates and copies `host` there. THROWS: SystemError.
  explicit CudaBuffer(std::span<const float> host);
  ~CudaBuffer();
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  [[nodiscard]] float* data() { return data_; }
  [[nodiscard]] const float* data() const { return data_; }
  /// Waits for the work queued so far, then copies back. REQUIRES: host.size() as constructed.
  void copy_to(std::span<float> host) const;

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace isthmus::kernels
