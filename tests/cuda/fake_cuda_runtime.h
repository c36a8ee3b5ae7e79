// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime that does nothing but answer, as its documentation has it: a call that fails also
// leaves its answer for cudaGetLastError, which forgets it.
#pragma once

#include <string>
#include <vector>

namespace isthmus::cuda::fake {

/// What the next calls of `call` answer, by CUDA's number; 0: success again.
void answer(const std::string& call, int error);
/// How often `call` has been made since this was asked last.
int take_calls(const std::string& call);
/// What cudaGetLastError would say.
[[nodiscard]] int last_error();

/// Those of the streams that were made since this was asked last; 0 is the lowest, -5 the highest.
[[nodiscard]] std::vector<int> take_priorities();
/// What kernels have been allowed of dynamic shared memory since this was asked last.
[[nodiscard]] std::vector<int> take_shared_bytes();
/// Of shared memory: what each kernel has of static, and a block at most.
inline constexpr int kStaticSharedBytes = 1000, kBlockSharedBytes = 99 << 10;

inline constexpr int kMemoryAllocation = 2, kInsufficientDriver = 35, kNoDevice = 100,
                     kNotReady = 600, kIllegalAddress = 700, kCaptureInvalidated = 901;

/// The newest CUDA that the driver serves, from now on; 0: there is no driver.
void set_driver_version(int version);
inline constexpr int kRuntimeVersion = 13000;

}  // namespace isthmus::cuda::fake
