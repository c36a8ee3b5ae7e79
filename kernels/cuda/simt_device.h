// SPDX-License-Identifier: Apache-2.0
// simt.h for nvcc: the launch, and names for instructions that CUDA C++ does not name.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime_check.h"

/// `type name extents`: static shared memory of a block, for example (float, sums, [4][32]).
#define ISTHMUS_SHARED(type, name, ...) __shared__ type name __VA_ARGS__

/// `type* name`: the kernel's dynamic shared memory, aligned to 128 bytes.
#define ISTHMUS_DYNAMIC_SHARED(type, name)                         \
  extern __shared__ __align__(128) unsigned char isthmus_shared[]; \
  type* const name = reinterpret_cast<type*>(isthmus_shared)

namespace isthmus::cuda {

struct LaunchShape {
  dim3 blocks{1};
  dim3 threads{1};
  std::size_t shared_bytes = 0;  // dynamic
};

/// Dynamic shared memory of a kernel without an explicit permission for more. Static and dynamic
/// memory together may then be 48 KiB; the rest is for static (tests/cuda/kernel_resources.py
/// checks this).
inline constexpr std::size_t kPlainSharedBytes = 32 << 10;

/// Queues kernel<<<shape>>>(arguments...), and throws the error of this launch only.
template <typename... Parameters, typename... Arguments>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (shape.shared_bytes > kPlainSharedBytes) {
    allow_shared_memory(reinterpret_cast<const void*>(kernel));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle());
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        "kernel launch");
}

/// The bytes at `at`, aligned to sizeof(V), as one access of up to 16 bytes.
template <typename V>
__device__ inline V load_as(const void* at) {
  return *static_cast<const V*>(at);
}
template <typename V>
__device__ inline void store_as(void* at, V value) {
  *static_cast<V*>(at) = value;
}

/// Two floats rounded to bfloat16, the first in the lower half.
__device__ inline std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// D += A B of a warp: A 16x16 and B 16x8 bfloat16, D 16x8 float, spread over the lanes as PTX's
/// mma.m16n8k16 has them (PTX ISA 9.7.14.5.8); a register holds two values, the lower column low.
__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// 2^x to about 2 units in the last place, subnormal results zero; 2^-inf is 0 (PTX ex2.approx).
__device__ inline float fast_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// Four 8x8 matrices of 16-bit values from shared memory into a warp's registers: lane i gives the
/// address of row i % 8 of matrix i / 8 (PTX ldmatrix.x4).
__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
/// The same with each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Begins a copy of 16 bytes, aligned to 16, from device memory to shared memory; with `inside`
/// false it writes zeros and does not read `from`. Complete after `wait_async_copies`.
__device__ inline void async_copy_16(void* shared, const void* from, bool inside = true) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(bytes)
               : "memory");
}
/// Ends a group of copies of this thread.
__device__ inline void commit_async_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the newest kPending groups of this thread's copies are complete.
template <int kPending>
__device__ inline void wait_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace isthmus::cuda
