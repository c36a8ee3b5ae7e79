// SPDX-License-Identifier: Apache-2.0
// The forward pass of attention in tensor cores. A block owns 128 queries, 32 a warp, and walks
// through tiles of 64 keys and values, of which the next one is copied while one is worked on;
// probabilities stay in registers between the two products. Tiles behind the diagonal are not
// visited, longest rows begin first. Device memory sees every input once and the output once, but
// for what keys and values cost a block of 128 queries: 128 multiply-adds a byte, mostly from L2.
#include "kernels/cuda/attention_tensor.h"

namespace isthmus::cuda {
namespace {

// Sums, logits and fragments take nearly all of a thread's 255 registers; with 48 (kDim 64) and 96
// KiB (128) of shared memory two blocks fit into a multiprocessor of sm_90, of sm_80 two and one.
constexpr int kBlockThreads = 128;
constexpr int kM = 2;  // 32 rows a warp: operands from shared memory serve two products each
constexpr int kQueries = kBlockThreads / kWarp * kM * 16;
constexpr int kKeys = 64;
constexpr int kColumns = kKeys / 8;

/// Largest logits, and sums over the keys that this lane holds, of the rows lane / 4 + {0, 8}.
struct Softmax {
  float top[kM][2], total[kM][2];
};

/// logits becomes probabilities to a common factor a row; sums follow a new largest logit.
template <int kDim>
__device__ inline void softmax_step(float (&logits)[kM][kColumns][4], float scale, Softmax& softmax,
                                    float (&sums)[kM][kDim / 8][4]) {
  float factors[kM][2];
  bool changed = false;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float old_top = softmax.top[m][half];
      float top = old_top;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        top = fmaxf(top, fmaxf(logits[m][n][half * 2], logits[m][n][half * 2 + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      softmax.top[m][half] = top;
      const float factor = fast_exp2((old_top - top) * scale);
      const float shift = top * scale;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; ++e) {
          logits[m][n][e] = fast_exp2(logits[m][n][e] * scale - shift);
          total += logits[m][n][e];
        }
      }
      softmax.total[m][half] = softmax.total[m][half] * factor + total;
      factors[m][half] = factor;
      changed = changed || factor != 1;
    }
  }
  if (!__any_sync(kAllLanes, changed)) return;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] *= factors[m][e / 2];
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kBlockThreads, 2)
    forward_kernel(AttentionShape shape, HeadsView<const Bf16> q, HeadsView<const Bf16> k,
                   HeadsView<const Bf16> v, HeadsView<Bf16> out, float* lse) {
  ISTHMUS_DYNAMIC_SHARED(Bf16, q_tile);
  Bf16* const k_tiles = q_tile + kQueries * kDim;
  Bf16* const v_tiles = k_tiles + 2 * kKeys * kDim;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kM * 16;
  const std::int64_t blocks = (shape.seq + kQueries - 1) / kQueries;
  const HeadTile place = tile_of_block(blocks, shape.q_heads);
  const std::int64_t first = (blocks - 1 - place.tile) * kQueries;
  const std::int64_t end = first + kQueries < shape.seq ? first + kQueries : shape.seq;
  const int tiles = static_cast<int>((end + kKeys - 1) / kKeys);
  const std::int64_t kv = place.h / (shape.q_heads / shape.kv_heads);
  const HeadRows<const Bf16> keys = rows_of(k, place.b, kv), values = rows_of(v, place.b, kv);
  const float scale = static_cast<float>(shape.scale) * kLog2E;

  load_tile<kQueries, kDim, kBlockThreads>(q_tile, rows_of(q, place.b, place.h), first, shape);
  load_tile<kKeys, kDim, kBlockThreads>(k_tiles, keys, 0, shape);
  load_tile<kKeys, kDim, kBlockThreads>(v_tiles, values, 0, shape);
  commit_async_copies();

  float sums[kM][kDim / 8][4] = {};
  Softmax softmax;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      softmax.top[m][half] = -INFINITY;
      softmax.total[m][half] = 0;
    }
  }
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    wait_async_copies<0>();
    __syncthreads();  // the tile is complete for all threads, and the tile before is no longer read
    const int stage = tile % 2 * kKeys * kDim;
    if (tile + 1 < tiles) {
      const int next = kKeys * kDim - stage;
      const std::int64_t next_key = std::int64_t{tile + 1} * kKeys;
      load_tile<kKeys, kDim, kBlockThreads>(k_tiles + next, keys, next_key, shape);
      load_tile<kKeys, kDim, kBlockThreads>(v_tiles + next, values, next_key, shape);
      commit_async_copies();
    }
    // Key `column` of the tile is seen by row `row` of the warp up to row + ahead.
    const int ahead = static_cast<int>(first - std::int64_t{tile} * kKeys) + own;
    if (ahead + kM * 16 - 1 < 0) continue;
    float logits[kM][kColumns][4];
    multiply<kDim>(q_tile, own, k_tiles + stage, 0, lane, logits);
    if (ahead < kKeys - 1) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = m * 16 + lane / 4 + e / 2 * 8;
            const int column = n * 8 + lane % 4 * 2 + e % 2;
            if (column > row + ahead) logits[m][n][e] = -INFINITY;
          }
        }
      }
    }
    softmax_step<kDim>(logits, scale, softmax, sums);
    accumulate<kDim>(logits, v_tiles + stage, 0, lane, sums);
  }

  float factors[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = softmax.total[m][half];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      factors[m][half] = 1 / total;
      const std::int64_t row = first + own + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < shape.seq) {
        lse[(place.b * shape.q_heads + place.h) * shape.seq + row] =
            (softmax.top[m][half] * scale + log2f(total)) * kLn2;
      }
    }
  }
  store_rows<kDim>(sums, factors, q_tile, own, lane, rows_of(out, place.b, place.h), first, shape);
}

template <int kDim>
void launch_forward(Stream& stream, const AttentionShape& shape, HeadsView<const Bf16> q,
                    HeadsView<const Bf16> k, HeadsView<const Bf16> v, HeadsView<Bf16> out,
                    float* lse) {
  constexpr int kSharedBytes = (kQueries + 4 * kKeys) * kDim * static_cast<int>(sizeof(Bf16));
  static_assert(kSharedBytes <= kTensorSharedBytes);
  launch(stream, head_tiles_shape(shape, shape.q_heads, kQueries, kBlockThreads, kSharedBytes),
         forward_kernel<kDim>, shape, q, k, v, out, lse);
}

}  // namespace

void tensor_attention_forward(Stream& stream, const AttentionShape& shape, HeadsView<const Bf16> q,
                              HeadsView<const Bf16> k, HeadsView<const Bf16> v, HeadsView<Bf16> out,
                              float* lse) {
  if (shape.head_dim <= 64) {
    launch_forward<64>(stream, shape, q, k, v, out, lse);
  } else {
    launch_forward<128>(stream, shape, q, k, v, out, lse);
  }
}

}  // namespace isthmus::cuda
