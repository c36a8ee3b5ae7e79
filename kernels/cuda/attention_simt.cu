// SPDX-License-Identifier: Apache-2.0
// Attention in float arithmetic, for float and for heads that the tensor cores' kernels do not
// take. A block owns 32 rows (queries, or keys for their gradients), 8 a warp, and walks through
// tiles of 32 rows of the other side. A lane computes the products of its warp's rows with one row
// of the tile, then owns every 32nd column of the sums; weights change hands in shared memory.
// Columns from head_dim to kDim are zeros. Bound by reads of shared memory: in a product 9 of 16
// bytes a lane serve 32 multiply-adds.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // of a warp
constexpr int kBlockThreads = kTile / kRows * kWarp;

template <int kDim>
inline constexpr int kRowFloats = kDim + 4;  // lanes read 16 bytes of 8 rows without conflict
template <int kDim>
inline constexpr int kTileFloats = kTile* kRowFloats<kDim>;

/// The part of the work that a block has: tile `tile` of head `h` of sequence `b`.
struct Place {
  std::int64_t b, h, tile;
};
__device__ inline Place place_of_block(std::int64_t tiles, std::int64_t heads) {
  const std::int64_t index = blockIdx.x;
  return {index / (tiles * heads), index / tiles % heads, index % tiles};
}

/// tile[r, :] := row first + r of head h, zeros behind the sequence and the head's columns.
template <int kDim, typename T>
__device__ void load_tile(const AttentionShape& shape, HeadsView<const T> x, std::int64_t b,
                          std::int64_t h, std::int64_t first, float* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDim; i += kBlockThreads) {
    const int row = i / kDim, column = i % kDim;
    const bool inside = first + row < shape.seq && column < shape.head_dim;
    tile[row * kRowFloats<kDim> + column] =
        inside ? static_cast<float>(x.at(b, first + row, h)[column]) : 0.0f;
  }
}

/// products[r] := own[r] . row.
template <int kDim>
__device__ void multiply(const float* own, const float* row, float (&products)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) products[r] = 0;
#pragma unroll 2
  for (int d = 0; d < kDim; d += 4) {
    const float4 y = *reinterpret_cast<const float4*>(row + d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 x = *reinterpret_cast<const float4*>(own + r * kRowFloats<kDim> + d);
      products[r] += x.x * y.x;
      products[r] += x.y * y.y;
      products[r] += x.z * y.z;
      products[r] += x.w * y.w;
    }
  }
}

/// sums[r][i] += sum over j of weights[r][j] tile[j][lane + 32 i].
template <int kDim>
__device__ void accumulate(const float* weights, const float* tile, int lane,
                           float (&sums)[kRows][kDim / kWarp]) {
#pragma unroll 1
  for (int j = 0; j < kTile; j += 4) {
    float4 w[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      w[r] = *reinterpret_cast<const float4*>(weights + r * kTile + j);
    }
#pragma unroll
    for (int i = 0; i < kDim / kWarp; ++i) {
      const float* const x = tile + j * kRowFloats<kDim> + lane + kWarp * i;
      const float x0 = x[0], x1 = x[kRowFloats<kDim>];
      const float x2 = x[2 * kRowFloats<kDim>], x3 = x[3 * kRowFloats<kDim>];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r][i] += w[r].x * x0;
        sums[r][i] += w[r].y * x1;
        sums[r][i] += w[r].z * x2;
        sums[r][i] += w[r].w * x3;
      }
    }
  }
}

/// Row first + r of head h := factors[r] sums[r], of the rows within the sequence.
template <int kDim, typename T>
__device__ void store_rows(const AttentionShape& shape, HeadsView<T> x, std::int64_t b,
                           std::int64_t h, std::int64_t first, int lane,
                           const float (&factors)[kRows],
                           const float (&sums)[kRows][kDim / kWarp]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= shape.seq) break;
#pragma unroll
    for (int i = 0; i < kDim / kWarp; ++i) {
      const int column = lane + kWarp * i;
      if (column < shape.head_dim) x.at(b, first + r, h)[column] = T(factors[r] * sums[r][i]);
    }
  }
}

// Logits are kept times log2(e), so that the softmax takes powers of two.
template <int kDim, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(AttentionShape shape, HeadsView<const T> q, HeadsView<const T> k,
                   HeadsView<const T> v, HeadsView<T> out, float* lse) {
  ISTHMUS_DYNAMIC_SHARED(float, q_tile);
  float* const k_tile = q_tile + kTileFloats<kDim>;
  float* const v_tile = k_tile + kTileFloats<kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* const weights = v_tile + kTileFloats<kDim> + warp * kRows * kTile;
  const std::int64_t tiles = (shape.seq + kTile - 1) / kTile;
  const Place place = place_of_block(tiles, shape.q_heads);
  const std::int64_t last = tiles - 1 - place.tile;  // long rows begin first
  const std::int64_t kv = place.h / (shape.q_heads / shape.kv_heads);
  const std::int64_t first_row = last * kTile + warp * kRows;
  const float scale = static_cast<float>(shape.scale) * kLog2E;

  load_tile<kDim>(shape, q, place.b, place.h, last * kTile, q_tile);
  float sums[kRows][kDim / kWarp] = {};
  float top[kRows], total[kRows];  // total: of the keys that this lane saw
#pragma unroll
  for (int r = 0; r < kRows; ++r) top[r] = -INFINITY, total[r] = 0;
  for (std::int64_t tile = 0; tile <= last; ++tile) {
    __syncthreads();
    load_tile<kDim>(shape, k, place.b, kv, tile * kTile, k_tile);
    load_tile<kDim>(shape, v, place.b, kv, tile * kTile, v_tile);
    __syncthreads();
    float logits[kRows];
    multiply<kDim>(q_tile + warp * kRows * kRowFloats<kDim>, k_tile + lane * kRowFloats<kDim>,
                   logits);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float logit = tile * kTile + lane <= first_row + r ? scale * logits[r] : -INFINITY;
      const float old_top = top[r];
      const float tile_top = warp_max(logit);
      top[r] = tile_top > old_top ? tile_top : old_top;
      const float factor = exp2f(old_top - top[r]);
      const float p = exp2f(logit - top[r]);
      total[r] = total[r] * factor + p;
#pragma unroll
      for (int i = 0; i < kDim / kWarp; ++i) sums[r][i] *= factor;
      weights[r * kTile + lane] = p;
    }
    __syncwarp();
    accumulate<kDim>(weights, v_tile, lane, sums);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    total[r] = warp_sum(total[r]);
    if (lane == 0 && first_row + r < shape.seq) {
      lse[(place.b * shape.q_heads + place.h) * shape.seq + first_row + r] =
          (top[r] + log2f(total[r])) * kLn2;
    }
    total[r] = 1 / total[r];
  }
  store_rows<kDim>(shape, out, place.b, place.h, first_row, lane, total, sums);
}

/// The probability and the gradient of the unscaled logit of one query and key.
struct Weights {
  float p, d_logit;
};
__device__ inline Weights weights_of(bool seen, float logit, float d_p, float lse, float delta) {
  const float p = seen ? exp2f(logit - lse) : 0.0f;
  return {p, p * (d_p - delta)};
}

template <int kDim, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    query_gradient_kernel(AttentionShape shape, AttentionBackward<T> a, RowSums rows) {
  ISTHMUS_DYNAMIC_SHARED(float, q_tile);
  float* const d_out_tile = q_tile + kTileFloats<kDim>;
  float* const k_tile = d_out_tile + kTileFloats<kDim>;
  float* const v_tile = k_tile + kTileFloats<kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* const weights = v_tile + kTileFloats<kDim> + warp * kRows * kTile;
  const std::int64_t tiles = (shape.seq + kTile - 1) / kTile;
  const Place place = place_of_block(tiles, shape.q_heads);
  const std::int64_t last = tiles - 1 - place.tile;
  const std::int64_t kv = place.h / (shape.q_heads / shape.kv_heads);
  const std::int64_t first_row = last * kTile + warp * kRows;
  const float scale = static_cast<float>(shape.scale);

  load_tile<kDim>(shape, a.q, place.b, place.h, last * kTile, q_tile);
  load_tile<kDim>(shape, a.d_out, place.b, place.h, last * kTile, d_out_tile);
  float row_lse[kRows], row_delta[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t at = (place.b * shape.q_heads + place.h) * rows.padded + first_row + r;
    row_lse[r] = rows.lse[at];
    row_delta[r] = rows.delta[at];
  }
  float sums[kRows][kDim / kWarp] = {};
  for (std::int64_t tile = 0; tile <= last; ++tile) {
    __syncthreads();
    load_tile<kDim>(shape, a.k, place.b, kv, tile * kTile, k_tile);
    load_tile<kDim>(shape, a.v, place.b, kv, tile * kTile, v_tile);
    __syncthreads();
    float logits[kRows], d_p[kRows];
    const int own = warp * kRows * kRowFloats<kDim>;
    multiply<kDim>(q_tile + own, k_tile + lane * kRowFloats<kDim>, logits);
    multiply<kDim>(d_out_tile + own, v_tile + lane * kRowFloats<kDim>, d_p);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool seen = tile * kTile + lane <= first_row + r;
      weights[r * kTile + lane] =
          weights_of(seen, scale * kLog2E * logits[r], d_p[r], row_lse[r], row_delta[r]).d_logit;
    }
    __syncwarp();
    accumulate<kDim>(weights, k_tile, lane, sums);
  }
  float factors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) factors[r] = scale;
  store_rows<kDim>(shape, a.d_q, place.b, place.h, first_row, lane, factors, sums);
}

// The same with the sides changed: a block owns keys and adds the queries of its group's heads,
// head after head.
template <int kDim, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    key_gradient_kernel(AttentionShape shape, AttentionBackward<T> a, RowSums rows) {
  ISTHMUS_DYNAMIC_SHARED(float, k_tile);
  float* const v_tile = k_tile + kTileFloats<kDim>;
  float* const q_tile = v_tile + kTileFloats<kDim>;
  float* const d_out_tile = q_tile + kTileFloats<kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* const p_weights = d_out_tile + kTileFloats<kDim> + warp * 2 * kRows * kTile;
  float* const d_logit_weights = p_weights + kRows * kTile;
  const std::int64_t tiles = (shape.seq + kTile - 1) / kTile;
  const Place place = place_of_block(tiles, shape.kv_heads);
  const std::int64_t group = shape.q_heads / shape.kv_heads;
  const std::int64_t first_row = place.tile * kTile + warp * kRows;
  const float scale = static_cast<float>(shape.scale);

  load_tile<kDim>(shape, a.k, place.b, place.h, place.tile * kTile, k_tile);
  load_tile<kDim>(shape, a.v, place.b, place.h, place.tile * kTile, v_tile);
  float k_sums[kRows][kDim / kWarp] = {}, v_sums[kRows][kDim / kWarp] = {};
  for (std::int64_t h = place.h * group; h < (place.h + 1) * group; ++h) {
    for (std::int64_t tile = place.tile; tile < tiles; ++tile) {
      __syncthreads();
      load_tile<kDim>(shape, a.q, place.b, h, tile * kTile, q_tile);
      load_tile<kDim>(shape, a.d_out, place.b, h, tile * kTile, d_out_tile);
      __syncthreads();
      float logits[kRows], d_p[kRows];
      const int own = warp * kRows * kRowFloats<kDim>;
      multiply<kDim>(k_tile + own, q_tile + lane * kRowFloats<kDim>, logits);
      multiply<kDim>(v_tile + own, d_out_tile + lane * kRowFloats<kDim>, d_p);
      const std::int64_t query = tile * kTile + lane;
      const std::int64_t at = (place.b * shape.q_heads + h) * rows.padded + query;
      const float query_lse = rows.lse[at];
      const float query_delta = rows.delta[at];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool seen = first_row + r <= query;
        const Weights w =
            weights_of(seen, scale * kLog2E * logits[r], d_p[r], query_lse, query_delta);
        p_weights[r * kTile + lane] = w.p;
        d_logit_weights[r * kTile + lane] = w.d_logit;
      }
      __syncwarp();
      accumulate<kDim>(p_weights, d_out_tile, lane, v_sums);
      accumulate<kDim>(d_logit_weights, q_tile, lane, k_sums);
    }
  }
  float factors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) factors[r] = 1;
  store_rows<kDim>(shape, a.d_v, place.b, place.h, first_row, lane, factors, v_sums);
#pragma unroll
  for (int r = 0; r < kRows; ++r) factors[r] = scale;
  store_rows<kDim>(shape, a.d_k, place.b, place.h, first_row, lane, factors, k_sums);
}

/// Bytes of `tiles` tiles and `weights` sets of weights.
template <int kDim>
constexpr std::size_t shared_bytes(int tiles, int weights) {
  return static_cast<std::size_t>(tiles * kTileFloats<kDim> + weights * kTile * kTile) *
         sizeof(float);
}
constexpr int kKeyTiles = 4, kKeyWeights = 2;  // of the keys' gradients, which take most

/// A block for every tile of every head, with `tiles` tiles and `weights` sets of weights in it.
template <int kDim>
LaunchShape simt_shape(const AttentionShape& shape, std::int64_t heads, int tiles, int weights) {
  const std::int64_t blocks = shape.batch * heads * ((shape.seq + kTile - 1) / kTile);
  return {.blocks = dim3(static_cast<unsigned>(blocks)),
          .threads = dim3(kBlockThreads),
          .shared_bytes = shared_bytes<kDim>(tiles, weights)};
}

/// use.operator()<kDim>() with the smallest kDim that holds the head; for Bf16, whose usual heads
/// the tensor cores take, there is none of 64.
template <typename T, typename Use>
void with_dim(std::int64_t head_dim, const Use& use) {
  if constexpr (std::is_same_v<T, float>) {
    if (head_dim <= 64) return use.template operator()<64>();
  }
  if (head_dim <= 128) return use.template operator()<128>();
  use.template operator()<256>();
}

}  // namespace

std::size_t simt_shared_bytes(std::int64_t head_dim) {
  return head_dim <= 128 ? shared_bytes<128>(kKeyTiles, kKeyWeights)
                         : shared_bytes<256>(kKeyTiles, kKeyWeights);
}

template <typename T>
void simt_attention_forward(Stream& stream, const AttentionShape& shape, HeadsView<const T> q,
                            HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                            float* lse) {
  with_dim<T>(shape.head_dim, [&]<int kDim>() {
    launch(stream, simt_shape<kDim>(shape, shape.q_heads, 3, 1), forward_kernel<kDim, T>, shape, q,
           k, v, out, lse);
  });
}

template <typename T>
void simt_attention_backward(Stream& stream, const AttentionShape& shape,
                             const AttentionBackward<T>& a, const RowSums& rows) {
  with_dim<T>(shape.head_dim, [&]<int kDim>() {
    launch(stream, simt_shape<kDim>(shape, shape.kv_heads, kKeyTiles, kKeyWeights),
           key_gradient_kernel<kDim, T>, shape, a, rows);
    launch(stream, simt_shape<kDim>(shape, shape.q_heads, 4, 1), query_gradient_kernel<kDim, T>,
           shape, a, rows);
  });
}

#define ISTHMUS_INSTANTIATE(T)                                                               \
  template void simt_attention_forward(Stream&, const AttentionShape&, HeadsView<const T>,   \
                                       HeadsView<const T>, HeadsView<const T>, HeadsView<T>, \
                                       float*);                                              \
  template void simt_attention_backward(Stream&, const AttentionShape&,                      \
                                        const AttentionBackward<T>&, const RowSums&);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(kernels::Bf16)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::cuda
