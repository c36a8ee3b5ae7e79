// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "isthmus/errors.h"
#include "kernels/cuda_buffer.h"
#include "kernels/cuda_device.h"

namespace isthmus::kernels {

std::vector<CudaDevice> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<CudaDevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    devices.push_back(CudaDevice{ordinal, properties.name, properties.major, properties.minor,
                                 properties.totalGlobalMem});
  }
  return devices;
}

std::string cuda_unavailable() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return std::string("no CUDA device can be used (is its driver installed?): ") +
           cudaGetErrorString(status);
  }
  return count > 0 ? "" : "this machine has no CUDA device";
}

void cuda_check(int status, const char* call) {
  if (status == cudaSuccess) return;
  throw SystemError(std::string("CUDA: ") + call + ": " +
                    cudaGetErrorString(static_cast<cudaError_t>(status)));
}

CudaBuffer::CudaBuffer(std::span<const float> host) : size_(host.size()) {
  cuda_check(cudaMalloc(&data_, host.size_bytes()), "cudaMalloc");
  const cudaError_t status =
      cudaMemcpy(data_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice);
  if (status != cudaSuccess) {
    cudaFree(data_);
    cuda_check(status, "cudaMemcpy to the device");
  }
}

CudaBuffer::~CudaBuffer() { cudaFree(data_); }

void CudaBuffer::copy_to(std::span<float> host) const {
  cuda_check(cudaMemcpy(host.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost),
             "cudaMemcpy to the host");
}

}  // namespace isthmus::kernels
