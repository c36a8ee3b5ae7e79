// SPDX-License-Identifier: Apache-2.0
// Backward pass of attention_fast.h, same tasks. For a block of query rows and a chunk of keys the
// softmax P is recomputed from its log-sum-exp. With delta = rowsum(dO * O) (Dao arXiv:2307.08691,
// algorithm 2):
//   dP = dO V^T,  dS = scale P (dP - delta),  dQ += dS K,  dV += P^T dO,  dK += dS^T Q.
// Include after one of simd_*.h.
#pragma once

#include "kernels/cpu/attention_fast.h"

namespace isthmus::kernels {
namespace {

/// Number of vectors that hold at least a tile's rows: a tile of keys that overlaps a tile of rows
/// may read that far beyond the keys of the rows.
inline constexpr std::int64_t kOverhang =
    (Simd::kTileRows + Simd::kWidth - 1) / Simd::kWidth * Simd::kWidth;

/// p = exp(scale p - lse) and ds = scale p (ds - delta) for the live keys of `columns`, zeros for
/// the others and in the vectors that a tile of keys may still read there: `before` columns before,
/// kTileRows after.
inline void softmax_gradient_row(float* p, float* ds, const LiveKeys& keys, std::int64_t columns,
                                 std::int64_t before, float scale, float lse, float delta) {
  const Simd::V factor = Simd::set(scale);
  std::int64_t j = -before;
  for (; j + Simd::kWidth <= keys.first; j += Simd::kWidth) {
    Simd::store(p + j, Simd::zero());
    Simd::store(ds + j, Simd::zero());
  }
  for (; j < columns; j += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(keys.end > j ? keys.end - j : 0);
    const Simd::V e = exp(Simd::sub(Simd::mul(Simd::load(p + j), factor), Simd::set(lse)));
    const Simd::V d = Simd::sub(Simd::load(ds + j), Simd::set(delta));
    Simd::V kept = Simd::select(mask, e, Simd::zero());
    Simd::V kept_d = Simd::select(mask, Simd::mul(Simd::mul(kept, factor), d), Simd::zero());
    if (j < keys.first) {
      const Simd::Mask earlier = Simd::first(keys.first - j);
      kept = Simd::select(earlier, Simd::zero(), kept);
      kept_d = Simd::select(earlier, Simd::zero(), kept_d);
    }
    Simd::store(p + j, kept);
    Simd::store(ds + j, kept_d);
  }
  for (j = columns; j < columns + Simd::kTileRows; j += Simd::kWidth) {
    Simd::store(p + j, Simd::zero());
    Simd::store(ds + j, Simd::zero());
  }
}

/// Applied after softmax_gradient_row if logits are capped: ds *= 1 - tanh^2 for the live keys.
/// `logits`: before the cap.
inline void cap_gradient_row(const float* logits, float* ds, const LiveKeys& keys,
                             std::int64_t columns, float scale, float cap) {
  const Simd::V inner = Simd::set(scale / cap);
  for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
    const Simd::V share = tanh(Simd::mul(Simd::load(logits + j), inner));
    const Simd::V slope = Simd::fnma(share, share, Simd::set(1.0f));
    const Simd::V d = Simd::mul(Simd::load(ds + j), slope);
    const Simd::Mask upto = Simd::first(keys.end > j ? keys.end - j : 0);
    const Simd::Mask before = Simd::first(keys.first > j ? keys.first - j : 0);
    Simd::store(ds + j, Simd::select(before, Simd::zero(), Simd::select(upto, d, Simd::zero())));
  }
}

/// One head's query rows: pointers to the block's first row.
template <typename T>
struct QueryBlock {
  const T* q = nullptr;
  const T* out = nullptr;
  const T* d_out = nullptr;
  T* d_q = nullptr;
  std::int64_t q_stride = 0, out_stride = 0, d_out_stride = 0, d_q_stride = 0;
  const float* lse = nullptr;
  std::int64_t begin = 0, rows = 0;
};

/// Converts rows [0, rows) of x, `columns` wide and kRowStride apart, to steps over the rows, in
/// place.
template <typename Product>
void fold_rows(std::int64_t rows, std::int64_t columns, float* x) {
  constexpr std::int64_t kFold = Product::kFold;
  if constexpr (!Product::kColumnsInPlace) {
    for (std::int64_t r = 0; r < rows; r += kFold) {
      const float* from = x + r * kRowStride;
      float* to = x + r / kFold * kRowStride;
      for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
        Simd::store(to + j, Product::across(from + j, kRowStride, at_most(rows - r, kFold)));
      }
    }
  }
}

/// Backward pass of one task; T: storage type of the heads.
template <typename Product, typename T>
class AttentionGradient {
 public:
  AttentionGradient(const AttentionShape& shape, const AttentionPlan& plan, std::int64_t sequence,
                    float* scratch)
      : s_(shape), plan_(plan), sequence_(sequence), dim_steps_(shape.head_dim / kFold) {
    const std::int64_t transposed = plan.padded_seq * dim_steps_;
    const std::int64_t rows = shape.seq * plan.padded_dim;
    const std::int64_t block = kQueryBlock * plan.padded_dim;
    float** areas[] = {&keys_t_, &values_t_, &keys_, &d_keys_, &d_values_, &q_,
                       &d_out_,  &d_q_,      &p_,    &ds_,     &packed_};
    const std::int64_t sizes[] = {transposed,
                                  transposed,
                                  rows,
                                  rows,
                                  rows,
                                  block,
                                  block,
                                  block,
                                  kQueryBlock * kRowStride,
                                  kQueryBlock * kRowStride,
                                  packed_rows_size(shape.head_dim)};
    for (int i = 0; i < 11; ++i) {
      *areas[i] = scratch;
      scratch += sizes[i];
    }
    for (std::int64_t i = 0; i < 2 * rows; ++i) d_keys_[i] = 0.0f;  // and d_values_ after it
  }

  static std::int64_t scratch_size(const AttentionShape& s, const AttentionPlan& plan) {
    return 2 * plan.padded_seq * s.head_dim + 3 * s.seq * plan.padded_dim +
           3 * kQueryBlock * plan.padded_dim + 2 * kQueryBlock * kRowStride +
           packed_rows_size(s.head_dim);
  }

  void pack(const T* k, std::int64_t k_stride, const T* v, std::int64_t v_stride) {
    pack_tokens<Product>(k, k_stride, s_.seq, s_.head_dim, keys_t_);
    pack_tokens<Product>(v, v_stride, s_.seq, s_.head_dim, values_t_);
    pack_rows<Product>(k, k_stride, s_.seq, s_.head_dim, keys_);
  }

  void query_block(const QueryBlock<T>& block) {
    pack_rows<Product>(block.q, block.q_stride, block.rows, s_.head_dim, q_);
    pack_rows<Product>(block.d_out, block.d_out_stride, block.rows, s_.head_dim, d_out_);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      Simd::V sum = Simd::zero();
      for (std::int64_t d = 0; d < s_.head_dim; d += Simd::kWidth) {
        sum = Simd::fma(Simd::load(block.d_out + i * block.d_out_stride + d),
                        Simd::load(block.out + i * block.out_stride + d), sum);
      }
      delta_[i] = Simd::sum(sum);
    }
    const std::int64_t first = first_panel(s_.first_key(sequence_, block.begin));
    for (std::int64_t chunk = first; chunk < block.begin + block.rows; chunk += kKeyChunk) {
      for (std::int64_t i = 0; i < block.rows; i += Simd::kTileRows) {
        const std::int64_t height = at_most(block.rows - i, Simd::kTileRows);
        if (chunk >= block.begin + i + height) continue;
        if (s_.first_key(sequence_, block.begin + i) >= chunk + kKeyChunk) continue;
        query_tile(block, i, height, chunk);
      }
      key_tiles(block, chunk);
    }
    for (std::int64_t i = 0; i < block.rows; ++i) {
      copy_row(d_q_ + i * plan_.padded_dim, block.d_q + i * block.d_q_stride);
    }
  }

  template <typename To>
  void store(To* d_k, std::int64_t d_k_stride, To* d_v, std::int64_t d_v_stride) const {
    for (std::int64_t t = 0; t < s_.seq; ++t) {
      copy_row(d_keys_ + t * plan_.padded_dim, d_k + t * d_k_stride);
      copy_row(d_values_ + t * plan_.padded_dim, d_v + t * d_v_stride);
    }
  }

 private:
  static constexpr std::int64_t kFold = Product::kFold;

  template <typename To>
  void copy_row(const float* from, To* to) const {
    for (std::int64_t d = 0; d < s_.head_dim; d += Simd::kWidth) {
      Simd::store(to + d, Simd::load(from + d));
    }
  }

  /// P, dS and dQ of one tile of query rows against one chunk.
  void query_tile(const QueryBlock<T>& block, std::int64_t i, std::int64_t height,
                  std::int64_t chunk) {
    const std::int64_t dim = s_.head_dim;
    const std::int64_t first = s_.first_key(sequence_, block.begin + i);
    const bool fresh = first >= chunk;  // no chunk has contributed to the rows yet
    const std::int64_t from = fresh ? first_panel(first) : chunk;
    const std::int64_t keys = at_most(block.begin + i + height, chunk + kKeyChunk) - from;
    const std::int64_t columns = blocks_of(keys, Simd::kWidth * kFold) * Simd::kWidth * kFold;
    float* p = p_ + i * kRowStride + from - chunk;
    float* ds = ds_ + i * kRowStride + from - chunk;
    multiply_row_tile<Product>(
        rows_as_a<Product>(block.q + i * block.q_stride, block.q_stride, height, dim, packed_),
        height, keys_t_ + from * dim_steps_, kTileColumns * dim_steps_, dim_steps_, keys, p,
        kRowStride, false);
    multiply_row_tile<Product>(rows_as_a<Product>(block.d_out + i * block.d_out_stride,
                                                  block.d_out_stride, height, dim, packed_),
                               height, values_t_ + from * dim_steps_, kTileColumns * dim_steps_,
                               dim_steps_, keys, ds, kRowStride, false);
    for (std::int64_t r = 0; r < height; ++r) {
      const LiveKeys live = live_keys(s_, sequence_, block.begin + i + r, from, keys);
      const float scale = static_cast<float>(s_.scale);
      float* const logits = p + r * kRowStride;
      if (s_.cap != 0) {
        for (std::int64_t j = 0; j < columns; ++j) logits_[j] = logits[j];
        cap_row(logits, columns, scale, static_cast<float>(s_.cap));
      }
      softmax_gradient_row(logits, ds + r * kRowStride, live, columns,
                           at_most(from - chunk, kOverhang), scale, block.lse[i + r],
                           delta_[i + r]);
      if (s_.cap != 0) {
        cap_gradient_row(logits_, ds + r * kRowStride, live, columns, scale,
                         static_cast<float>(s_.cap));
      }
    }
    multiply_row_tile<Product>(rows_as_a<Product>(ds, kRowStride, height, columns, packed_), height,
                               keys_ + from / kFold * kTileColumns,
                               blocks_of(s_.seq, kFold) * kTileColumns, blocks_of(keys, kFold), dim,
                               d_q_ + i * plan_.padded_dim, plan_.padded_dim, !fresh);
  }

  /// dK and dV of the keys of one chunk that the block's rows see.
  void key_tiles(const QueryBlock<T>& block, std::int64_t chunk) {
    const std::int64_t keys = at_most(block.begin + block.rows - chunk, kKeyChunk);
    const std::int64_t columns = blocks_of(keys, Simd::kWidth) * Simd::kWidth;
    fold_rows<Product>(block.rows, columns, p_);
    fold_rows<Product>(block.rows, columns, ds_);
    const std::int64_t steps = blocks_of(block.rows, kFold);
    std::int64_t seeing = 0;  // number of rows of the block whose first key is not after the tile's
                              // last
    for (std::int64_t j = 0; j < keys; j += Simd::kTileRows) {
      const std::int64_t height = at_most(keys - j, Simd::kTileRows);
      // Rows before the tile's first key do not see it, nor do rows after `seeing`; such a row has
      // zeros there if it shares a step with a row that sees the tile.
      const std::int64_t first = chunk + j > block.begin ? (chunk + j - block.begin) / kFold : 0;
      while (seeing < block.rows &&
             s_.first_key(sequence_, block.begin + seeing) < chunk + j + height) {
        ++seeing;
      }
      const std::int64_t depth = blocks_of(seeing, kFold) - first;
      if (depth <= 0) continue;
      const std::int64_t at = (chunk + j) * plan_.padded_dim;
      multiply_row_tile<Product>({p_ + first * kRowStride + j, 1, kRowStride}, height,
                                 d_out_ + first * kTileColumns, steps * kTileColumns, depth,
                                 s_.head_dim, d_values_ + at, plan_.padded_dim, true);
      multiply_row_tile<Product>({ds_ + first * kRowStride + j, 1, kRowStride}, height,
                                 q_ + first * kTileColumns, steps * kTileColumns, depth,
                                 s_.head_dim, d_keys_ + at, plan_.padded_dim, true);
    }
  }

  const AttentionShape& s_;
  const AttentionPlan& plan_;
  std::int64_t sequence_;
  std::int64_t dim_steps_;     // of head_dim
  float *keys_t_, *values_t_;  // transposed
  float* keys_;                // panels of columns
  float *d_keys_, *d_values_;  // (seq, padded_dim)
  float *q_, *d_out_;          // panels of columns of the block
  float* d_q_;                 // (kQueryBlock, padded_dim)
  float *p_, *ds_;             // (kQueryBlock, kRowStride)
  float* packed_;              // of rows_as_a
  float delta_[kQueryBlock];
  float logits_[kRowStride];  // of a row, before their cap
};

/// Adds the shares of split key heads, in order.
template <typename T>
void add_shares(ThreadTeam& team, const AttentionShape& s, const AttentionPlan& plan,
                const float* shares, const AttentionBackward<T>& a) {
  const std::int64_t size = s.seq * s.head_dim;
  team.for_each(s.batch * s.kv_heads * s.seq, [&](std::int64_t index, int) {
    const std::int64_t head = index / s.seq;
    const std::int64_t t = index % s.seq;
    const float* first = shares + head * plan.splits * 2 * size + t * s.head_dim;
    T* d_k = a.d_k.at(head / s.kv_heads, t, head % s.kv_heads);
    T* d_v = a.d_v.at(head / s.kv_heads, t, head % s.kv_heads);
    for (std::int64_t d = 0; d < s.head_dim; d += Simd::kWidth) {
      Simd::V sum_k = Simd::load(first + d);
      Simd::V sum_v = Simd::load(first + size + d);
      for (std::int64_t split = 1; split < plan.splits; ++split) {
        sum_k = Simd::add(sum_k, Simd::load(first + split * 2 * size + d));
        sum_v = Simd::add(sum_v, Simd::load(first + split * 2 * size + size + d));
      }
      Simd::store(d_k + d, sum_k);
      Simd::store(d_v + d, sum_v);
    }
  });
}

template <typename Product, typename T>
void attention_backward_with(ThreadTeam& team, const AttentionShape& s,
                             const AttentionBackward<T>& a) {
  const AttentionPlan plan(s);
  const std::int64_t size = s.seq * s.head_dim;
  float* shares =
      plan.splits == 1 ? nullptr : team.scratch<float>(Scratch::kPartial, plan.tasks * 2 * size);
  team.for_each(plan.tasks, [&](std::int64_t task, int member) {
    const std::int64_t b = task / plan.splits / s.kv_heads;
    const std::int64_t kv = task / plan.splits % s.kv_heads;
    using Gradient = AttentionGradient<Product, T>;
    Gradient gradient(
        s, plan, b,
        team.scratch<float>(Scratch::kOperation, Gradient::scratch_size(s, plan), member));
    gradient.pack(a.k.at(b, 0, kv), a.k.token_stride, a.v.at(b, 0, kv), a.v.token_stride);
    for (std::int64_t h = kv * plan.group; h < (kv + 1) * plan.group; ++h) {
      for (std::int64_t block = task % plan.splits; block < plan.query_blocks;
           block += plan.splits) {
        const std::int64_t t = block * kQueryBlock;
        gradient.query_block({.q = a.q.at(b, t, h),
                              .out = a.out.at(b, t, h),
                              .d_out = a.d_out.at(b, t, h),
                              .d_q = a.d_q.at(b, t, h),
                              .q_stride = a.q.token_stride,
                              .out_stride = a.out.token_stride,
                              .d_out_stride = a.d_out.token_stride,
                              .d_q_stride = a.d_q.token_stride,
                              .lse = a.lse + (b * s.q_heads + h) * s.seq + t,
                              .begin = t,
                              .rows = at_most(s.seq - t, kQueryBlock)});
      }
    }
    if (shares == nullptr) {
      gradient.store(a.d_k.at(b, 0, kv), a.d_k.token_stride, a.d_v.at(b, 0, kv),
                     a.d_v.token_stride);
    } else {
      float* share = shares + task * 2 * size;
      gradient.store(share, s.head_dim, share + size, s.head_dim);
    }
  });
  if (shares != nullptr) add_shares(team, s, plan, shares, a);
}

}  // namespace
}  // namespace isthmus::kernels
