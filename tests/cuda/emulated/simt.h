// SPDX-License-Identifier: Apache-2.0
// simt.h for a C++ compiler: kernels run on the CPU, a block's threads as fibers of the calling
// thread, one block after another. For tests: slow, but what a kernel computes is what the device
// computes, up to the rounding of functions such as exp.
//
// It finds what a device hides: threads and blocks run in orders that `set_thread_order` shuffles,
// shared memory of a block that begins and what `async_copy_16` has not delivered hold NaNs, a
// barrier or a warp's exchange that not all threads reach ends the program with the thread's place,
// and streams do their work as late, or as early, as they may (runtime.cpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <typeinfo>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define ISTHMUS_SHARED(type, name, ...)                      \
  static type name __VA_ARGS__;                              \
  static ::isthmus::cuda::emulated::OfBlock name##_of_block; \
  name##_of_block.begin(&name, sizeof name)
#define ISTHMUS_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::isthmus::cuda::emulated::dynamic_shared())

namespace isthmus::cuda {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  template <typename X, typename Y = unsigned, typename Z = unsigned>
  dim3(X x_, Y y_ = 1, Z z_ = 1)  // NOLINT: as CUDA's
      : x(static_cast<unsigned>(x_)), y(static_cast<unsigned>(y_)), z(static_cast<unsigned>(z_)) {}
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;  // of the thread that runs

struct LaunchShape {
  dim3 blocks{1};
  dim3 threads{1};
  std::size_t shared_bytes = 0;
};

namespace emulated {

inline constexpr std::size_t kSlotBytes = 64;  // what a lane can give in one exchange
using Slot = std::byte[kSlotBytes];

/// 0: blocks and threads in order; else another order of blocks for every grid and of threads for
/// every block, of this seed.
void set_thread_order(std::uint64_t seed);

inline std::uint64_t blocks_begun = 0;
/// Fills shared memory with NaNs, and counts it as the block's.
void begin_shared(void* data, std::size_t bytes);
/// Of a static variable in shared memory: the block in which it began last.
struct OfBlock {
  std::uint64_t block = 0;
  /// Where the first thread of a block comes to the declaration.
  void begin(void* data, std::size_t bytes) {
    if (block == blocks_begun) return;
    block = blocks_begun;
    begin_shared(data, bytes);
  }
};

void queue(Stream& stream, std::function<void()> work);
/// THROWS: SystemError where a device refuses such a launch.
void check_launch(const LaunchShape& shape);
/// Whether kernels of this type do nothing, as a test has it.
[[nodiscard]] bool skips(const std::type_info& kernel);
void run_grid(const LaunchShape& shape, const std::function<void()>& kernel);
[[nodiscard]] void* dynamic_shared();
void sync_threads();
/// Gives `bytes` bytes and waits for the warp. RETURNS: what its 32 lanes gave, good until the
/// next exchange but one.
[[nodiscard]] const Slot* exchange(const void* value, std::size_t bytes);
[[nodiscard]] int lane();
void queue_copy(void* shared, const void* from, bool inside);
void commit_copies();
void wait_copies(int pending);

template <typename T>
[[nodiscard]] T given(const Slot* slots, int from) {
  T value;
  std::memcpy(&value, slots[from], sizeof(T));
  return value;
}
template <typename T>
[[nodiscard]] const Slot* give(const T& value) {
  static_assert(sizeof(T) <= kSlotBytes);
  return exchange(&value, sizeof(T));
}

}  // namespace emulated

template <typename... Parameters, typename... Arguments>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments... arguments) {
  emulated::check_launch(shape);
  emulated::queue(
      stream,
      [shape, kernel, values = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] {
        if (emulated::skips(typeid(kernel))) return;
        emulated::run_grid(shape, [&] { std::apply(kernel, values); });
      });
}

inline void __syncthreads() { emulated::sync_threads(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { static_cast<void>(emulated::give(0)); }
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return emulated::given<T>(emulated::give(value), from & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::given<T>(emulated::give(value), emulated::lane() ^ mask);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
  const auto* slots = emulated::give(value);
  const int from = emulated::lane() - static_cast<int>(by);
  return from < 0 ? value : emulated::given<T>(slots, from);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const auto* slots = emulated::give(value);
  const int from = emulated::lane() + static_cast<int>(by);
  return from > 31 ? value : emulated::given<T>(slots, from);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  const auto* slots = emulated::give(vote);
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) votes |= static_cast<unsigned>(emulated::given<bool>(slots, i)) << i;
  return votes;
}
inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline bool __all_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) == 0xFFFFFFFFu;
}

template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = value > old ? value : old;
  return old;
}
template <typename T>
T atomicOr(T* at, T value) {
  const T old = *at;
  *at = old | value;
  return old;
}

template <typename T>
T __ldg(const T* at) {
  return *at;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

void check_aligned(const void* at, std::size_t bytes);
template <typename V>
V load_as(const void* at) {
  check_aligned(at, sizeof(V));
  V value;
  std::memcpy(&value, at, sizeof(V));
  return value;
}
template <typename V>
void store_as(void* at, V value) {
  check_aligned(at, sizeof(V));
  std::memcpy(at, &value, sizeof(V));
}
inline std::uint32_t bf16_pair(float low, float high) {
  return kernels::Bf16(low).bits | std::uint32_t{kernels::Bf16(high).bits} << 16;
}

inline float fast_exp2(float x) { return std::exp2(x); }
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void load_matrices(std::uint32_t (&r)[4], const void* row);
void load_matrices_transposed(std::uint32_t (&r)[4], const void* row);
inline void async_copy_16(void* shared, const void* from, bool inside = true) {
  emulated::queue_copy(shared, from, inside);
}
inline void commit_async_copies() { emulated::commit_copies(); }
template <int kPending>
void wait_async_copies() {
  emulated::wait_copies(kPending);
}

}  // namespace isthmus::cuda
