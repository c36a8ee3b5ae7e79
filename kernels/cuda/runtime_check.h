// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

namespace isthmus::cuda {

/// True if a call succeeded. If not, clears the runtime's error: else cudaGetLastError would return
/// it after a later kernel launch, and it would be taken for that launch's error.
bool succeeded(cudaError_t status) noexcept;

/// THROWS: SystemError naming the call and CUDA's text when it failed.
void check(cudaError_t status, const char* call);

/// Allows blocks of `kernel` to use all the shared memory that the calling thread's device has for
/// a block; the default is 48 KiB. CUDA is called once per kernel and device, always with the same
/// value, since the setting belongs to the kernel and other threads launch it with other sizes. Any
/// thread. THROWS: as check.
void allow_shared_memory(const void* kernel);

}  // namespace isthmus::cuda
