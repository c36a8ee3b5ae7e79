// SPDX-License-Identifier: Apache-2.0
// The values of a tile that a sparse codec sends, in shared memory: `kept` values and their
// indices, ascending; tile.h describes the assignment of a tile to a thread block.
#pragma once

#include "quant/codecs/index_coding.h"
#include "quant/codecs/scale_plane.h"
#include "quant/cuda/cosine_tile.h"
#include "quant/cuda/tile.h"

namespace isthmus::cuda {

/// The part of a SparseCodecSpec that kernels need.
struct SparseShape {
  unsigned k = 0;  // of 4096
  SparseValues values = SparseValues::kFp32;
  IndexCoding indices = IndexCoding::kPacked12;
  unsigned rice = 0, last_rice = 0;  // parameters of a whole tile and of the last one
  float most_scale = 0;              // largest_scale(kInt8Levels)
  bool transformed = false;          // dct-topk: the kept values are coefficients
  CosineMatrices cosines;            // where `transformed`
};

__host__ __device__ inline unsigned sparse_count_of(unsigned k, unsigned n) {
  const auto tile = static_cast<unsigned>(kTileValues);
  const unsigned count = (k * n + tile - 1) / tile;
  return count < n ? count : n;
}

[[nodiscard]] inline SparseShape sparse_shape(const SparseCodecSpec& spec,
                                              const CosineMatrices& cosines, std::size_t n) {
  const auto k = static_cast<unsigned>(spec.k);
  const auto last = static_cast<unsigned>((n - 1) % kTileValues + 1);
  SparseShape shape{.k = k,
                    .values = spec.values,
                    .indices = spec.indices,
                    .most_scale = largest_scale(kInt8Levels),
                    .transformed = spec.dct,
                    .cosines = cosines};
  if (spec.indices == IndexCoding::kRice) {
    shape.rice = rice_parameter(kTileValues, sparse_count_of(k, kTileValues));
    shape.last_rice = rice_parameter(last, sparse_count_of(k, last));
  }
  return shape;
}

/// Bytes before the indices.
__device__ inline unsigned sparse_value_bytes(SparseValues form, unsigned count) {
  switch (form) {
    case SparseValues::kFp32:
      return 4 * count;
    case SparseValues::kInt8:
      return 4 + count;
    case SparseValues::kSign:
      return 4 + (count + 7) / 8;
    case SparseValues::k2Bit:
      break;
  }
  return 8 + (count + 3) / 4;
}

/// The parts of dynamic shared memory.
struct SparseShared {
  float* kept;
  std::uint16_t* where;
  unsigned char* bytes;  // aligned to 16
  float* sent;           // a whole tile, and `half` another one, if requested
  float* half;
};
__host__ __device__ inline std::size_t rounded_to_piece(std::size_t bytes) {
  return (bytes + kPiece - 1) / kPiece * kPiece;
}
__device__ inline SparseShared sparse_shared(unsigned char* shared, unsigned k,
                                             std::size_t tile_bytes) {
  unsigned char* const where = shared + rounded_to_piece(sizeof(float) * k);
  unsigned char* const bytes = where + rounded_to_piece(sizeof(std::uint16_t) * k);
  auto* const sent = reinterpret_cast<float*>(bytes + rounded_to_piece(tile_bytes + kPiece));
  return {reinterpret_cast<float*>(shared), reinterpret_cast<std::uint16_t*>(where), bytes, sent,
          sent + kTileValues};
}
/// `tiles`: number of the requested arrays among `sent` and `half`.
[[nodiscard]] inline std::size_t sparse_shared_bytes(unsigned k, std::size_t tile_bytes,
                                                     unsigned tiles) {
  return rounded_to_piece(sizeof(float) * k) + rounded_to_piece(sizeof(std::uint16_t) * k) +
         rounded_to_piece(tile_bytes + kPiece) + tiles * sizeof(float) * kTileValues;
}
/// sent := the kept values at their indices, zero elsewhere. Ends with a barrier.
__device__ inline void spread_kept(const SparseShared& shared, unsigned count) {
  for (unsigned i = threadIdx.x; i < kTileValues; i += kTileThreads) shared.sent[i] = 0;
  __syncthreads();
  for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
    shared.sent[shared.where[j]] = shared.kept[j];
  }
  __syncthreads();
}

/// where[0, count) := indices below n that randk draws from `seed`: Floyd's algorithm on one
/// thread, since each draw depends on earlier ones. `draws`: count words.
__device__ inline void draw_places(std::uint32_t seed, unsigned n, unsigned count,
                                   std::uint32_t* draws, std::uint16_t* where) {
  constexpr unsigned kWord = 32;
  ISTHMUS_SHARED(std::uint32_t, chosen, [kTileValues / kWord]);
  const unsigned t = threadIdx.x;
  for (unsigned q = t; q < (count + 3) / 4; q += kTileThreads) {
    std::uint32_t words[4];
    random_words(seed, isthmus::Stream::kRandomK, q, 1, words);
    for (unsigned i = 0; i < 4 && 4 * q + i < count; ++i) draws[4 * q + i] = words[i];
  }
  for (unsigned w = t; w < kTileValues / kWord; w += kTileThreads) chosen[w] = 0;
  __syncthreads();
  if (t == 0) {
    for (unsigned j = n - count, draw = 0; j < n; ++j, ++draw) {
      const auto at = static_cast<unsigned>(std::uint64_t{draws[draw]} * (j + 1) >> 32);
      const bool taken = (chosen[at / kWord] >> at % kWord & 1u) != 0;
      const unsigned pick = taken ? j : at;
      chosen[pick / kWord] |= 1u << pick % kWord;
    }
  }
  __syncthreads();
  if (t < kTileValues / kWord) {
    unsigned at = 0;
    for (unsigned w = 0; w < t; ++w) at += static_cast<unsigned>(__popc(chosen[w]));
    for (std::uint32_t rest = chosen[t]; rest != 0; rest &= rest - 1) {
      where[at++] = static_cast<std::uint16_t>(
          t * kWord + static_cast<unsigned>(__ffs(static_cast<int>(rest))) - 1);
    }
  }
  __syncthreads();
}

}  // namespace isthmus::cuda
