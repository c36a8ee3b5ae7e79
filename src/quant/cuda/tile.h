// SPDX-License-Identifier: Apache-2.0
// A tile processed by one block of kTileThreads threads: a warp has 512 consecutive values, a
// thread 4 chunks of 4 consecutive values, so a warp reads and writes 512 bytes at a time. Encoded
// bytes are staged in shared memory at the same offset from a 16-byte border as in memory, so that
// all but a few at both ends are moved 16 at a time, for any start of a tile. Device functions must
// be called by all threads of the block and contain barriers, unless stated otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/rng.h"
#include "isthmus/codec.h"
#include "kernels/cuda/simt.h"
#include "kernels/spsa_math.h"
#include "quant/cuda/tile_kernels.h"
#include "quant/math/scale_math.h"

namespace isthmus::cuda {

inline constexpr unsigned kTileThreads = 256;
inline constexpr int kChunks = 4;
inline constexpr unsigned kChunkValues = 4;
inline constexpr unsigned kWarpValues = 128;  // of one chunk of a warp's threads
static_assert(kTileThreads * kChunks * kChunkValues == kTileValues);
inline constexpr std::size_t kPiece = 16;  // bytes moved at once

/// [c][k]: value k of chunk c of a thread.
using ChunkValues = float[kChunks][kChunkValues];

/// First value of chunk c of this thread, within its tile. No barrier.
__device__ inline unsigned chunk_place(int c) {
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  return (warp * kChunks + static_cast<unsigned>(c)) * kWarpValues + kChunkValues * lane;
}

/// True on a 16-byte border. No barrier.
__device__ inline bool on_piece(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kPiece == 0;
}

/// Loads the n values of the tile that starts at x; zeros after them. No barrier.
__device__ inline void load_values(const float* x, unsigned n, ChunkValues& v) {
  const bool aligned = on_piece(x);
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (aligned && i + kChunkValues <= n) {
      const float4 four = *reinterpret_cast<const float4*>(x + i);
      v[c][0] = four.x, v[c][1] = four.y, v[c][2] = four.z, v[c][3] = four.w;
    } else {
      for (unsigned k = 0; k < kChunkValues; ++k) v[c][k] = i + k < n ? x[i + k] : 0.0f;
    }
  }
}
/// Stores the tile's n values, as load_values has them. No barrier.
__device__ inline void store_values(float* x, unsigned n, const ChunkValues& v) {
  const bool aligned = on_piece(x);
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (aligned && i + kChunkValues <= n) {
      *reinterpret_cast<float4*>(x + i) = make_float4(v[c][0], v[c][1], v[c][2], v[c][3]);
    } else {
      for (unsigned k = 0; k < kChunkValues && i + k < n; ++k) x[i + k] = v[c][k];
    }
  }
}

/// Address at which bytes for memory at `at` are staged in `buffer`, which is aligned to 16 with 16
/// to spare. No barrier.
__device__ inline unsigned char* staged(unsigned char* buffer, const void* at) {
  return buffer + reinterpret_cast<std::uintptr_t>(at) % kPiece;
}
/// to[0, n) := from[0, n), both at the same offset from a 16-byte border. No barrier.
__device__ inline void move_bytes(unsigned char* to, const unsigned char* from, std::size_t n) {
  const std::size_t off = reinterpret_cast<std::uintptr_t>(to) % kPiece;
  const std::size_t head = off == 0 ? 0 : (kPiece - off < n ? kPiece - off : n);
  const std::size_t pieces = (n - head) / kPiece;
  for (std::size_t i = threadIdx.x; i < head; i += kTileThreads) to[i] = from[i];
  for (std::size_t i = threadIdx.x; i < pieces; i += kTileThreads) {
    reinterpret_cast<uint4*>(to + head)[i] = reinterpret_cast<const uint4*>(from + head)[i];
  }
  for (std::size_t i = head + pieces * kPiece + threadIdx.x; i < n; i += kTileThreads) {
    to[i] = from[i];
  }
}

/// Fields at any address. No barrier.
template <typename T>
__device__ inline T load_field(const unsigned char* at) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < sizeof(T); ++i) word |= std::uint32_t{at[i]} << (8 * i);
  if constexpr (sizeof(T) == sizeof(word)) {
    return __builtin_bit_cast(T, word);
  } else {
    return static_cast<T>(word);
  }
}
template <typename T>
__device__ inline void store_field(unsigned char* at, T value) {
  std::uint32_t word = 0;
  if constexpr (sizeof(T) == sizeof(word)) {
    word = __builtin_bit_cast(std::uint32_t, value);
  } else {
    word = value;
  }
  for (unsigned i = 0; i < sizeof(T); ++i) at[i] = static_cast<unsigned char>(word >> (8 * i));
}

/// True on all threads if it is true on one.
__device__ inline bool any_thread(bool mine) {
  ISTHMUS_SHARED(int, any);
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (mine) any = 1;
  __syncthreads();
  const bool result = any != 0;
  __syncthreads();
  return result;
}
/// Maximum over the block, on all threads.
__device__ inline std::uint32_t largest_of(std::uint32_t mine) {
  ISTHMUS_SHARED(std::uint32_t, most);
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  mine = warp_max(mine);
  if (threadIdx.x % kWarp == 0) atomicMax(&most, mine);
  __syncthreads();
  const std::uint32_t result = most;
  __syncthreads();
  return result;
}

/// Records a rejected tile, below 2^32; the lowest index is kept. One thread; no barrier.
__device__ inline void note_bad(std::uint32_t* first_bad, std::size_t tile) {
  atomicMax(first_bad, ~static_cast<std::uint32_t>(tile));
}

/// Words of Rng(seed, stream) for (index, sub). No barrier.
__device__ inline void random_words(std::uint64_t seed, isthmus::Stream stream, std::uint64_t index,
                                    std::uint32_t sub, std::uint32_t (&words)[4]) {
  const auto drawn = kernels::philox4x32_10(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), sub,
       static_cast<std::uint32_t>(stream)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  for (unsigned i = 0; i < 4; ++i) words[i] = drawn[i];
}

/// Adds the residual to a tile's values: v := x + decay e. No barrier.
__device__ inline void load_tile(const EncodeWork& work, std::size_t tile, unsigned n,
                                 ChunkValues& v) {
  const auto load = [n](const float* from, ChunkValues& to) {
    if (n < kTileValues || !on_piece(from)) return load_values(from, n, to);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {  // no branch keeps one load from the next
      const float4 four = *reinterpret_cast<const float4*>(from + chunk_place(c));
      to[c][0] = four.x, to[c][1] = four.y, to[c][2] = four.z, to[c][3] = four.w;
    }
  };
  load(work.x + tile * kTileValues, v);
  const ResidualPlace& place = work.feedback;
  if (place.residual == nullptr) return;
  ChunkValues e;
  load(place.residual + tile * kTileValues, e);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      v[c][k] = with_one_nan(v[c][k] + (place.decay == 1 ? e[c][k] : place.decay * e[c][k]));
    }
  }
}
/// residual := the error, unless a thread has a value that is not finite: then records the tile.
__device__ inline void keep_lost(const ResidualPlace& place, std::size_t tile, unsigned n,
                                 const ChunkValues& lost, bool bad) {
  if (any_thread(bad)) {
    if (threadIdx.x == 0) note_bad(place.first_bad, tile);
  } else {
    store_values(place.residual + tile * kTileValues, n, lost);
  }
}
/// residual := v - sent, unless one of either is not finite: then records the tile.
__device__ inline void keep_residual(const ResidualPlace& place, std::size_t tile, unsigned n,
                                     const ChunkValues& v, const ChunkValues& sent) {
  ChunkValues e;
  bool bad = false;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const bool inside = chunk_place(c) + k < n;
      bad = bad || (inside && !(is_finite(v[c][k]) && is_finite(sent[c][k])));
      e[c][k] = v[c][k] - sent[c][k];
    }
  }
  keep_lost(place, tile, n, e, bad);
}

}  // namespace isthmus::cuda
