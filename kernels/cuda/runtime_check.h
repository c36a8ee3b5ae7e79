// SPDX-License-Identifier: Apache-2.0
// Answers of the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

namespace isthmus::cuda {

/// Whether a call went well. If not, the runtime forgets it: else it stays what cudaGetLastError
/// says, and whoever asks that after a launch of his own takes it for the launch's.
bool succeeded(cudaError_t status) noexcept;

/// THROWS: SystemError naming the call and CUDA's text where it did not.
void check(cudaError_t status, const char* call);

/// From now on blocks of `kernel` may have all the shared memory that the calling thread's device
/// gives a block; without, 48 KiB. CUDA is asked once a kernel and device, and always told the same
/// value: it is the kernel's, and other threads launch the same kernel with other sizes. Any
/// thread. THROWS: as check.
void allow_shared_memory(const void* kernel);

}  // namespace isthmus::cuda
