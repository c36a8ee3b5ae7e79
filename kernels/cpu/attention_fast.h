// SPDX-License-Identifier: Apache-2.0
// Blocked causal attention on the tiles of gemm. A task is one key head of one sequence (or a share
// of its query blocks when there are few heads). Its keys and values are packed once. Tiles of six
// query rows then pass over chunks of keys: logits of a tile for a whole chunk, softmax while they
// are in L1, product with the values. The causal border is exact to a vector, and the border of the
// first visible key to a panel, so few masked logits are computed. Include after one of simd_*.h.
#pragma once

#include <math.h>

#include "kernels/attention.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/simd_math.h"

namespace isthmus::kernels {
namespace {

inline constexpr std::int64_t kQueryBlock = 96;  // 16 tiles, whose state stays in L1 and L2
inline constexpr std::int64_t kKeyChunk = 256;   // keys of a chunk: both packed forms fit in L2
// Rows of probabilities are a cache line longer than a chunk, so that column accesses (the
// transposed products of the backward pass) do not fall on few sets of the cache.
inline constexpr std::int64_t kRowStride = kKeyChunk + 16;
// With fewer heads than this, tasks are split by query blocks; the bound depends only on the shape,
// so bits are the same for every team.
inline constexpr std::int64_t kTasksWanted = 16;
inline constexpr float kMinusInfinity = -3.0e38f;

/// Rows [0, rows) of one head as panels of columns, each (steps, kTileColumns), steps running over
/// the rows.
template <typename Product, typename T>
void pack_rows(const T* from, std::int64_t token_stride, std::int64_t rows, std::int64_t columns,
               float* to) {
  constexpr std::int64_t kFold = Product::kFold;
  const std::int64_t steps = blocks_of(rows, kFold);
  for (std::int64_t p = 0; p < steps; ++p) {
    scatter_to_panels<Product>(from + p * kFold * token_stride, token_stride,
                               at_most(rows - p * kFold, kFold), columns, to + p * kTileColumns,
                               steps * kTileColumns);
  }
}

/// Rows of one head transposed: panel j holds tokens [j kTileColumns, (j + 1) kTileColumns) as
/// (steps, kTileColumns), steps running over head_dim.
template <typename Product, typename T>
void pack_tokens(const T* from, std::int64_t token_stride, std::int64_t rows, std::int64_t head_dim,
                 float* to) {
  for (std::int64_t t = 0; t < rows; t += kTileColumns) {
    pack_transposed<Product>(from + t * token_stride, token_stride, rows - t, head_dim,
                             to + t * (head_dim / Product::kFold));
  }
}

/// The A operand of a tile of rows with `values` values of k each: used in place, or packed into
/// `buffer`. REQUIRES: values a multiple of kFold.
template <typename Product, typename T>
TileA rows_as_a(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t values,
                float* buffer) {
  if constexpr (Product::template kInPlace<T>) {
    if (stride % Product::kFold == 0) return {lanes_of(from), stride / Product::kFold, 1};
  }
  // An odd number of cache lines apart, so that the rows of a tile do not share a set.
  const std::int64_t apart = (blocks_of(values, 16) | 1) * 16;
  for (std::int64_t r = 0; r < rows; ++r) {
    pack_row<Product>(from + r * stride, values, buffer + r * apart);
  }
  return {buffer, apart, 1};
}

/// Number of floats of its buffer, for rows of a head and of probabilities.
inline std::int64_t packed_rows_size(std::int64_t head_dim) {
  const std::int64_t widest = head_dim > kKeyChunk ? head_dim : kKeyChunk;
  return Simd::kTileRows * (blocks_of(widest, 16) + 1) * 16;
}

/// Sizes derived from a shape.
struct AttentionPlan {
  explicit AttentionPlan(const AttentionShape& s)
      : group(s.q_heads / s.kv_heads),
        column_panels(blocks_of(s.head_dim, kTileColumns)),
        padded_dim(column_panels * kTileColumns),
        padded_seq(blocks_of(s.seq, kTileColumns) * kTileColumns),
        query_blocks(blocks_of(s.seq, kQueryBlock)) {
    const std::int64_t heads = s.batch * s.kv_heads;
    splits = heads == 0 ? 1 : at_most(blocks_of(kTasksWanted, heads), query_blocks);
    tasks = heads * splits;
  }
  std::int64_t group;          // query heads to a key head
  std::int64_t column_panels;  // across head_dim
  std::int64_t padded_dim, padded_seq;
  std::int64_t query_blocks;
  std::int64_t splits;  // tasks to a key head: split x takes query blocks x, x + splits, ...
  std::int64_t tasks;
};

/// Range of keys among `columns` that one row sees: [first, end), empty if end <= first.
struct LiveKeys {
  std::int64_t first = 0, end = 0;
  [[nodiscard]] bool any() const { return first < end; }
};

/// x -> (cap / scale) tanh(scale x / cap), in place: scale times the result is the capped logit.
inline void cap_row(float* x, std::int64_t columns, float scale, float cap) {
  const Simd::V inner = Simd::set(scale / cap);
  const Simd::V outer = Simd::set(cap / scale);
  for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
    Simd::store(x + j, Simd::mul(outer, tanh(Simd::mul(Simd::load(x + j), inner))));
  }
}

/// exp(scale * x - top) in place for the live logits of `columns`, zeros for the others. RETURNS:
/// their sum.
inline float exp_row(float* x, const LiveKeys& keys, std::int64_t columns, float scale, float top) {
  const std::int64_t live = keys.end;
  const Simd::V factor = Simd::set(scale);
  const Simd::V shift = Simd::set(top);
  Simd::V sum = Simd::zero();
  std::int64_t j = 0;
  for (; j + Simd::kWidth <= keys.first; j += Simd::kWidth) Simd::store(x + j, Simd::zero());
  if (j < keys.first) {
    const Simd::V e = exp(Simd::sub(Simd::mul(Simd::load(x + j), factor), shift));
    const Simd::Mask before = Simd::first(live > j ? live - j : 0);
    sum = Simd::select(Simd::first(keys.first - j), Simd::zero(),
                       Simd::select(before, e, Simd::zero()));
    Simd::store(x + j, sum);
    j += Simd::kWidth;
  }
  for (; j + Simd::kWidth <= live; j += Simd::kWidth) {
    const Simd::V e = exp(Simd::sub(Simd::mul(Simd::load(x + j), factor), shift));
    Simd::store(x + j, e);
    sum = Simd::add(sum, e);
  }
  for (; j < columns; j += Simd::kWidth) {
    const Simd::Mask mask = Simd::first(live > j ? live - j : 0);
    const Simd::V e = exp(Simd::sub(Simd::mul(Simd::load(x + j), factor), shift));
    const Simd::V kept = Simd::select(mask, e, Simd::zero());
    Simd::store(x + j, kept);
    sum = Simd::add(sum, kept);
  }
  return Simd::sum(sum);
}

/// REQUIRES: at least one.
inline float largest_of_row(const float* x, const LiveKeys& keys) {
  const std::int64_t live = keys.end;
  Simd::V top = Simd::set(kMinusInfinity);
  std::int64_t j = keys.first / Simd::kWidth * Simd::kWidth;
  if (j < keys.first) {
    const Simd::Mask mask = Simd::first(live - j);
    const Simd::V lanes = Simd::select(mask, Simd::load(x + j, mask), top);
    top = Simd::select(Simd::first(keys.first - j), top, lanes);
    j += Simd::kWidth;
  }
  for (; j + Simd::kWidth <= live; j += Simd::kWidth) top = Simd::max(top, Simd::load(x + j));
  if (j < live) {
    const Simd::Mask mask = Simd::first(live - j);
    top = Simd::max(top, Simd::select(mask, Simd::load(x + j, mask), top));
  }
  return Simd::largest(top);
}

inline void scale_row(float* x, std::int64_t n, float factor) {
  for (std::int64_t j = 0; j < n; j += Simd::kWidth) {
    Simd::store(x + j, Simd::mul(Simd::load(x + j), Simd::set(factor)));
  }
}

/// The keys that row t sees among `keys` keys from `from` on.
inline LiveKeys live_keys(const AttentionShape& s, std::int64_t b, std::int64_t t,
                          std::int64_t from, std::int64_t keys) {
  const std::int64_t first = s.first_key(b, t) - from;
  return {first > 0 ? at_most(first, keys) : 0, at_most(t + 1 - from, keys)};
}

/// First key for a tile of rows that sees no key before `first`: the start of a panel.
inline std::int64_t first_panel(std::int64_t first) { return first / kTileColumns * kTileColumns; }

/// Forward pass of one task; T: storage type of the heads.
template <typename Product, typename T>
class AttentionForward {
 public:
  AttentionForward(const AttentionShape& shape, const AttentionPlan& plan, std::int64_t sequence,
                   float* scratch)
      : s_(shape),
        plan_(plan),
        sequence_(sequence),
        dim_steps_(shape.head_dim / kFold),
        keys_(scratch),
        values_(keys_ + plan.padded_seq * dim_steps_),
        out_(values_ + blocks_of(shape.seq, kFold) * plan.padded_dim),
        p_(out_ + kQueryBlock * plan.padded_dim),
        packed_(p_ + Simd::kTileRows * kRowStride) {}

  static std::int64_t scratch_size(const AttentionShape& s, const AttentionPlan& plan) {
    return plan.padded_seq * s.head_dim / kFold + blocks_of(s.seq, kFold) * plan.padded_dim +
           kQueryBlock * plan.padded_dim + Simd::kTileRows * kRowStride +
           packed_rows_size(s.head_dim);
  }

  void pack(const T* k, std::int64_t k_stride, const T* v, std::int64_t v_stride) {
    pack_tokens<Product>(k, k_stride, s_.seq, s_.head_dim, keys_);
    pack_rows<Product>(v, v_stride, s_.seq, s_.head_dim, values_);
  }

  /// Query rows [begin, begin + rows) of one head; q, out point at row `begin`.
  void query_block(const T* q, std::int64_t q_stride, std::int64_t begin, std::int64_t rows, T* out,
                   std::int64_t out_stride, float* lse) {
    for (std::int64_t i = 0; i < rows; ++i) {
      top_[i] = kMinusInfinity;
      total_[i] = 0;
    }
    const std::int64_t first = first_panel(s_.first_key(sequence_, begin));
    for (std::int64_t chunk = first; chunk < begin + rows; chunk += kKeyChunk) {
      for (std::int64_t i = 0; i < rows; i += Simd::kTileRows) {
        const std::int64_t height = at_most(rows - i, Simd::kTileRows);
        if (chunk >= begin + i + height) continue;
        if (s_.first_key(sequence_, begin + i) >= chunk + kKeyChunk) continue;
        tile(q + i * q_stride, q_stride, begin, i, height, chunk);
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const Simd::V inverse = Simd::set(1.0f / total_[i]);
      for (std::int64_t d = 0; d < s_.head_dim; d += Simd::kWidth) {
        Simd::store(out + i * out_stride + d,
                    Simd::mul(Simd::load(out_ + i * plan_.padded_dim + d), inverse));
      }
      lse[i] = top_[i] + ::logf(total_[i]);
    }
  }

 private:
  static constexpr std::int64_t kFold = Product::kFold;

  /// Query rows begin + i .. + height against the keys of one chunk.
  void tile(const T* q, std::int64_t q_stride, std::int64_t begin, std::int64_t i,
            std::int64_t height, std::int64_t chunk) {
    const float scale = static_cast<float>(s_.scale);
    const std::int64_t last = begin + i + height;  // one past the last key any of the rows sees
    const std::int64_t first = s_.first_key(sequence_, begin + i);
    const bool fresh = first >= chunk;  // no chunk has contributed to the rows yet
    const std::int64_t from = fresh ? first_panel(first) : chunk;
    const std::int64_t keys = at_most(last, chunk + kKeyChunk) - from;
    multiply_row_tile<Product>(rows_as_a<Product>(q, q_stride, height, s_.head_dim, packed_),
                               height, keys_ + from * dim_steps_, kTileColumns * dim_steps_,
                               dim_steps_, keys, p_, kRowStride, false);
    const std::int64_t columns = blocks_of(keys, Simd::kWidth * kFold) * Simd::kWidth * kFold;
    for (std::int64_t r = 0; r < height; ++r) {
      float* p = p_ + r * kRowStride;
      const LiveKeys live = live_keys(s_, sequence_, begin + i + r, from, keys);
      if (s_.cap != 0) cap_row(p, columns, scale, static_cast<float>(s_.cap));
      // A row may end before this chunk while a later row of its tile enters it, or begin after it
      // while an earlier row still overlaps it.
      const float before = top_[i + r];
      const float here = live.any() ? scale * largest_of_row(p, live) : before;
      const float top = here > before ? here : before;
      const float sum = exp_row(p, live, columns, scale, top);
      const float keep = fresh ? 0.0f : ::expf(before - top);
      total_[i + r] = total_[i + r] * keep + sum;
      top_[i + r] = top;
      if (!fresh) scale_row(out_ + (i + r) * plan_.padded_dim, s_.head_dim, keep);
    }
    multiply_row_tile<Product>(rows_as_a<Product>(p_, kRowStride, height, columns, packed_), height,
                               values_ + from / kFold * kTileColumns,
                               blocks_of(s_.seq, kFold) * kTileColumns, blocks_of(keys, kFold),
                               s_.head_dim, out_ + i * plan_.padded_dim, plan_.padded_dim, !fresh);
  }

  const AttentionShape& s_;
  const AttentionPlan& plan_;
  std::int64_t sequence_;
  std::int64_t dim_steps_;  // of head_dim
  float* keys_;             // transposed
  float* values_;           // panels of columns
  float* out_;              // (kQueryBlock, padded_dim), not yet divided
  float* p_;                // (kTileRows, kRowStride)
  float* packed_;           // of rows_as_a
  float top_[kQueryBlock];
  float total_[kQueryBlock];
};

template <typename Product, typename T>
void attention_forward_with(ThreadTeam& team, const AttentionShape& s, HeadsView<const T> q,
                            HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                            float* lse) {
  const AttentionPlan plan(s);
  team.for_each(plan.tasks, [&](std::int64_t task, int member) {
    const std::int64_t b = task / plan.splits / s.kv_heads;
    const std::int64_t kv = task / plan.splits % s.kv_heads;
    using Forward = AttentionForward<Product, T>;
    Forward forward(
        s, plan, b,
        team.scratch<float>(Scratch::kOperation, Forward::scratch_size(s, plan), member));
    forward.pack(k.at(b, 0, kv), k.token_stride, v.at(b, 0, kv), v.token_stride);
    for (std::int64_t h = kv * plan.group; h < (kv + 1) * plan.group; ++h) {
      for (std::int64_t block = task % plan.splits; block < plan.query_blocks;
           block += plan.splits) {
        const std::int64_t begin = block * kQueryBlock;
        forward.query_block(q.at(b, begin, h), q.token_stride, begin,
                            at_most(s.seq - begin, kQueryBlock), out.at(b, begin, h),
                            out.token_stride, lse + (b * s.q_heads + h) * s.seq + begin);
      }
    }
  });
}

}  // namespace
}  // namespace isthmus::kernels
