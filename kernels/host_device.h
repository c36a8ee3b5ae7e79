// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic shared by host and device code. Each operation is rounded once on both sides:
// nvcc would otherwise fuse a product and a sum, and replicas on different machines would differ.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define ISTHMUS_HOST_DEVICE __host__ __device__
#else
#define ISTHMUS_HOST_DEVICE
#endif

namespace isthmus::kernels {

#ifdef __CUDA_ARCH__
__device__ inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float sub_rn(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float div_rn(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float sqrt_rn(float a) { return __fsqrt_rn(a); }
#else
ISTHMUS_HOST_DEVICE inline float mul_rn(float a, float b) { return a * b; }
ISTHMUS_HOST_DEVICE inline float add_rn(float a, float b) { return a + b; }
ISTHMUS_HOST_DEVICE inline float sub_rn(float a, float b) { return a - b; }
ISTHMUS_HOST_DEVICE inline float div_rn(float a, float b) { return a / b; }
ISTHMUS_HOST_DEVICE inline float sqrt_rn(float a) { return std::sqrt(a); }
#endif

}  // namespace isthmus::kernels
