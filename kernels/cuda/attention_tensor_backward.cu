// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention in tensor cores, without atomics: one kernel's blocks own keys and
// walk through the queries of their group's heads in order, another's own queries and walk through
// keys. Both compute the probabilities again, 7 products in place of 5 for the same bits in every
// run. Probabilities and their gradients stay in registers; the next tile is copied while one is
// worked on.
#include "kernels/cuda/attention_tensor.h"

namespace isthmus::cuda {
namespace {

/// How a kernel cuts its work: a block's warps own kM times 16 rows each, the other side comes in
/// tiles of kTile rows, of which kStep meet at a time in registers.
template <int kThreads_, int kM_, int kTile_, int kStep_>
struct Cut {
  static constexpr int kThreads = kThreads_, kM = kM_, kTile = kTile_, kStep = kStep_;
  static constexpr int kRows = kThreads / kWarp * kM * 16;
  static constexpr int kColumns = kStep / 8;
};
// Two sums of (kM 16, kDim) floats lie over a warp's registers for keys, one for queries. Shared
// memory of a block: 65 KiB for keys and 64 for queries (kDim 64), 129 and 96 (128): 8 warps a
// multiprocessor, but 4 for queries at 128 on sm_80. With kM = 1 what comes from shared memory
// serves half as many products, which is what should limit keys at 128. A block of compute
// capability 8.6, 8.9 and 12.0 has 99 KiB at most: there queries come to keys in tiles of 32.
template <int kDim>
struct KeyCut : Cut<128, 2, 64, 32> {};
template <>
struct KeyCut<128> : Cut<256, 1, 64, 64> {};
using SmallKeyCut = Cut<256, 1, 32, 32>;
template <int kDim>
struct QueryCut : Cut<128, 2, 64, 32> {};
template <>
struct QueryCut<128> : Cut<128, 2, 32, 32> {};

/// One step of a block of keys: rows are keys, columns queries. `behind`: key `row` of the warp is
/// seen by queries from column row - behind on.
template <int kDim, typename Cut>
__device__ inline void key_step(const Bf16* k_tile, const Bf16* v_tile, int own, const Bf16* q_tile,
                                const Bf16* d_out_tile, int query, const float* lse,
                                const float* delta, float scale, int behind, int lane,
                                float (&k_sums)[Cut::kM][kDim / 8][4],
                                float (&v_sums)[Cut::kM][kDim / 8][4]) {
  float p[Cut::kM][Cut::kColumns][4], d_logits[Cut::kM][Cut::kColumns][4];
  multiply<kDim>(k_tile, own, q_tile, query, lane, p);
  multiply<kDim>(v_tile, own, d_out_tile, query, lane, d_logits);
#pragma unroll
  for (int n = 0; n < Cut::kColumns; ++n) {
    const int column = query + n * 8 + lane % 4 * 2;
    const float2 of_lse = *reinterpret_cast<const float2*>(lse + column);
#pragma unroll
    for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p[m][n][e] = fast_exp2(p[m][n][e] * scale - (e % 2 == 0 ? of_lse.x : of_lse.y));
      }
    }
  }
  if (behind < Cut::kM * 16 - 1) {  // on the diagonal
#pragma unroll
    for (int n = 0; n < Cut::kColumns; ++n) {
#pragma unroll
      for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = m * 16 + lane / 4 + e / 2 * 8;
          if (n * 8 + lane % 4 * 2 + e % 2 < row - behind) p[m][n][e] = 0;
        }
      }
    }
  }
  accumulate<kDim>(p, d_out_tile, query, lane, v_sums);
#pragma unroll
  for (int n = 0; n < Cut::kColumns; ++n) {
    const int column = query + n * 8 + lane % 4 * 2;
    const float2 of_delta = *reinterpret_cast<const float2*>(delta + column);
#pragma unroll
    for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        d_logits[m][n][e] =
            p[m][n][e] * (d_logits[m][n][e] - (e % 2 == 0 ? of_delta.x : of_delta.y));
      }
    }
  }
  accumulate<kDim>(d_logits, q_tile, query, lane, k_sums);
}

/// Queries, their gradients of out and their sums, of one stage.
template <int kDim, typename Cut>
struct QueryStage {
  Bf16 q[Cut::kTile * kDim], d_out[Cut::kTile * kDim];
  float lse[Cut::kTile], delta[Cut::kTile];

  __device__ void load(const AttentionBackward<Bf16>& a, const RowSums& rows,
                       const AttentionShape& shape, std::int64_t b, std::int64_t h,
                       std::int64_t first) {
    load_tile<Cut::kTile, kDim, Cut::kThreads>(q, rows_of(a.q, b, h), first, shape);
    load_tile<Cut::kTile, kDim, Cut::kThreads>(d_out, rows_of(a.d_out, b, h), first, shape);
    const float* const row_lse = rows.lse + (b * shape.q_heads + h) * rows.padded + first;
    const float* const row_delta = rows.delta + (b * shape.q_heads + h) * rows.padded + first;
    const int i = static_cast<int>(threadIdx.x) * 4;
    if (i < Cut::kTile) {
      async_copy_16(lse + i, row_lse + i);
      async_copy_16(delta + i, row_delta + i);
    }
    commit_async_copies();
  }
};

template <int kDim, typename Cut>
__global__ void __launch_bounds__(Cut::kThreads, 256 / Cut::kThreads)
    key_gradient_kernel(AttentionShape shape, AttentionBackward<Bf16> a, RowSums rows) {
  constexpr int kM = Cut::kM, kTile = Cut::kTile;
  using Stage = QueryStage<kDim, Cut>;
  ISTHMUS_DYNAMIC_SHARED(Bf16, k_tile);
  Bf16* const v_tile = k_tile + Cut::kRows * kDim;
  Stage* const stages = reinterpret_cast<Stage*>(v_tile + Cut::kRows * kDim);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kM * 16;
  const HeadTile place = tile_of_block((shape.seq + Cut::kRows - 1) / Cut::kRows, shape.kv_heads);
  const std::int64_t first = place.tile * Cut::kRows;
  const float scale = static_cast<float>(shape.scale);
  // Queries before the block's first key see none of its keys.
  const std::int64_t first_tile = first / kTile;
  const int tiles = static_cast<int>((shape.seq + kTile - 1) / kTile - first_tile);
  const int group = static_cast<int>(shape.q_heads / shape.kv_heads);

  load_tile<Cut::kRows, kDim, Cut::kThreads>(k_tile, rows_of(a.k, place.b, place.h), first, shape);
  load_tile<Cut::kRows, kDim, Cut::kThreads>(v_tile, rows_of(a.v, place.b, place.h), first, shape);
  stages[0].load(a, rows, shape, place.b, place.h * group, first_tile * kTile);

  float k_sums[kM][kDim / 8][4] = {}, v_sums[kM][kDim / 8][4] = {};
  int member = 0, tile = 0;  // of the group, and of its queries
#pragma unroll 1
  for (int i = 0; i < group * tiles; ++i) {
    wait_async_copies<0>();
    __syncthreads();  // the stage is complete for all threads, and the other stage is no longer
                      // read
    const Stage& now = stages[i % 2];
    const std::int64_t first_query = (first_tile + tile) * kTile;
    if (++tile == tiles) tile = 0, ++member;
    if (member < group) {
      stages[(i + 1) % 2].load(a, rows, shape, place.b, place.h * group + member,
                               (first_tile + tile) * kTile);
    }
#pragma unroll 1
    for (int query = 0; query < kTile; query += Cut::kStep) {
      const int behind = static_cast<int>(first_query + query - first) - own;
      if (behind + Cut::kStep - 1 < 0) continue;
      key_step<kDim, Cut>(k_tile, v_tile, own, now.q, now.d_out, query, now.lse, now.delta,
                          scale * kLog2E, behind, lane, k_sums, v_sums);
    }
  }
  float factors[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factors[m][0] = factors[m][1] = scale;
  store_rows<kDim>(k_sums, factors, k_tile, own, lane, rows_of(a.d_k, place.b, place.h), first,
                   shape);
#pragma unroll
  for (int m = 0; m < kM; ++m) factors[m][0] = factors[m][1] = 1;
  store_rows<kDim>(v_sums, factors, v_tile, own, lane, rows_of(a.d_v, place.b, place.h), first,
                   shape);
}

/// One step of a block of queries: rows are queries, columns keys. `ahead`: row `row` of the warp
/// sees keys up to column row + ahead.
template <int kDim, typename Cut>
__device__ inline void query_step(const Bf16* q_tile, const Bf16* d_out_tile, int own,
                                  const Bf16* k_tile, const Bf16* v_tile, int key,
                                  const float (&lse)[Cut::kM][2], const float (&delta)[Cut::kM][2],
                                  float scale, int ahead, int lane,
                                  float (&sums)[Cut::kM][kDim / 8][4]) {
  float p[Cut::kM][Cut::kColumns][4], d_logits[Cut::kM][Cut::kColumns][4];
  multiply<kDim>(q_tile, own, k_tile, key, lane, p);
  multiply<kDim>(d_out_tile, own, v_tile, key, lane, d_logits);
#pragma unroll
  for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Cut::kColumns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p[m][n][e] = fast_exp2(p[m][n][e] * scale - lse[m][e / 2]);
      }
    }
  }
  if (ahead < Cut::kStep - 1) {  // on the diagonal
#pragma unroll
    for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Cut::kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = m * 16 + lane / 4 + e / 2 * 8;
          if (n * 8 + lane % 4 * 2 + e % 2 > row + ahead) p[m][n][e] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < Cut::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Cut::kColumns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        d_logits[m][n][e] = p[m][n][e] * (d_logits[m][n][e] - delta[m][e / 2]);
      }
    }
  }
  accumulate<kDim>(d_logits, k_tile, key, lane, sums);
}

template <int kDim>
__global__ void __launch_bounds__(QueryCut<kDim>::kThreads, 256 / QueryCut<kDim>::kThreads)
    query_gradient_kernel(AttentionShape shape, AttentionBackward<Bf16> a, RowSums rows) {
  using Cut = QueryCut<kDim>;
  constexpr int kM = Cut::kM, kTile = Cut::kTile;
  ISTHMUS_DYNAMIC_SHARED(Bf16, q_tile);
  Bf16* const d_out_tile = q_tile + Cut::kRows * kDim;
  Bf16* const k_tiles = d_out_tile + Cut::kRows * kDim;
  Bf16* const v_tiles = k_tiles + 2 * kTile * kDim;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kM * 16;
  const std::int64_t blocks = (shape.seq + Cut::kRows - 1) / Cut::kRows;
  const HeadTile place = tile_of_block(blocks, shape.q_heads);
  const std::int64_t first = (blocks - 1 - place.tile) * Cut::kRows;  // long rows begin first
  const std::int64_t end = first + Cut::kRows < shape.seq ? first + Cut::kRows : shape.seq;
  const int tiles = static_cast<int>((end + kTile - 1) / kTile);
  const std::int64_t kv = place.h / (shape.q_heads / shape.kv_heads);
  const HeadRows<const Bf16> keys = rows_of(a.k, place.b, kv), values = rows_of(a.v, place.b, kv);
  const float scale = static_cast<float>(shape.scale);

  load_tile<Cut::kRows, kDim, Cut::kThreads>(q_tile, rows_of(a.q, place.b, place.h), first, shape);
  load_tile<Cut::kRows, kDim, Cut::kThreads>(d_out_tile, rows_of(a.d_out, place.b, place.h), first,
                                             shape);
  load_tile<kTile, kDim, Cut::kThreads>(k_tiles, keys, 0, shape);
  load_tile<kTile, kDim, Cut::kThreads>(v_tiles, values, 0, shape);
  commit_async_copies();

  float lse[kM][2], delta[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = (place.b * shape.q_heads + place.h) * rows.padded + first + own +
                               m * 16 + half * 8 + lane / 4;
      lse[m][half] = rows.lse[row];
      delta[m][half] = rows.delta[row];
    }
  }
  float sums[kM][kDim / 8][4] = {};
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    wait_async_copies<0>();
    __syncthreads();  // the tile is complete for all threads, and the tile before is no longer read
    const int stage = tile % 2 * kTile * kDim;
    if (tile + 1 < tiles) {
      const int next = kTile * kDim - stage;
      const std::int64_t next_key = std::int64_t{tile + 1} * kTile;
      load_tile<kTile, kDim, Cut::kThreads>(k_tiles + next, keys, next_key, shape);
      load_tile<kTile, kDim, Cut::kThreads>(v_tiles + next, values, next_key, shape);
      commit_async_copies();
    }
#pragma unroll 1
    for (int key = 0; key < kTile; key += Cut::kStep) {
      const int ahead = static_cast<int>(first - std::int64_t{tile} * kTile) - key + own;
      if (ahead + kM * 16 - 1 < 0) break;
      query_step<kDim, Cut>(q_tile, d_out_tile, own, k_tiles + stage, v_tiles + stage, key, lse,
                            delta, scale * kLog2E, ahead, lane, sums);
    }
  }
  float factors[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factors[m][0] = factors[m][1] = scale;
  store_rows<kDim>(sums, factors, q_tile, own, lane, rows_of(a.d_q, place.b, place.h), first,
                   shape);
}

template <int kDim>
inline constexpr int kRowBytes = kDim* static_cast<int>(sizeof(Bf16));
template <int kDim, typename Cut>
inline constexpr int kKeyBytes = 2 * Cut::kRows* kRowBytes<kDim> +
                                 2 * static_cast<int>(sizeof(QueryStage<kDim, Cut>));
template <int kDim>
inline constexpr int kQueryBytes =
    2 * (QueryCut<kDim>::kRows + 2 * QueryCut<kDim>::kTile) * kRowBytes<kDim>;
static_assert(kKeyBytes<128, SmallKeyCut> <= kTensorSharedBytes);
static_assert(kQueryBytes<128> <= kTensorSharedBytes);

template <int kDim, typename Cut>
void launch_for_keys(Stream& stream, const AttentionShape& shape, const AttentionBackward<Bf16>& a,
                     const RowSums& rows) {
  launch(stream,
         head_tiles_shape(shape, shape.kv_heads, Cut::kRows, Cut::kThreads, kKeyBytes<kDim, Cut>),
         key_gradient_kernel<kDim, Cut>, shape, a, rows);
}

template <int kDim>
void launch_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward<Bf16>& a,
                     const RowSums& rows) {
  constexpr int kBytes = kKeyBytes<kDim, KeyCut<kDim>>;
  if constexpr (kBytes <= kTensorSharedBytes) {
    launch_for_keys<kDim, KeyCut<kDim>>(stream, shape, a, rows);
  } else if (std::size_t{kBytes} <= shared_bytes_of_block()) {
    launch_for_keys<kDim, KeyCut<kDim>>(stream, shape, a, rows);
  } else {
    launch_for_keys<kDim, SmallKeyCut>(stream, shape, a, rows);
  }
  using ForQueries = QueryCut<kDim>;
  launch(stream,
         head_tiles_shape(shape, shape.q_heads, ForQueries::kRows, ForQueries::kThreads,
                          kQueryBytes<kDim>),
         query_gradient_kernel<kDim>, shape, a, rows);
}

}  // namespace

void tensor_attention_backward(Stream& stream, const AttentionShape& shape,
                               const AttentionBackward<Bf16>& a, const RowSums& rows) {
  if (shape.head_dim <= 64) {
    launch_backward<64>(stream, shape, a, rows);
  } else {
    launch_backward<128>(stream, shape, a, rows);
  }
}

}  // namespace isthmus::cuda
