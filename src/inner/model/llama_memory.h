// SPDX-License-Identifier: Apache-2.0
// Where a Llama layer's weights lie, and what it keeps between its passes. Pointers alone; the
// memory is the caller's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "inner/model/arena.h"
#include "inner/model/model_block.h"
#include "inner/model/model_shape.h"
#include "kernels/bf16.h"

namespace isthmus {

/// Pointers into a layer's weights, or gradients, in the order of llama_layer_tensors. q, k, v lie
/// one after another and so are one (qkv_width, d) matrix; gate and up are one (2 d_ff, d).
template <typename T>
struct LlamaTensors {
  T *norm1_weight, *qkv_weight, *out_weight, *q_norm_weight, *k_norm_weight;
  T *norm2_weight, *gate_up_weight, *down_weight;

  LlamaTensors(T* at, const ModelShape& s) {
    const std::int64_t d = s.d_model;
    const auto next = [&at](std::int64_t count) {
      T* tensor = at;
      at += count;
      return tensor;
    };
    norm1_weight = next(d);
    qkv_weight = next(s.qkv_width() * d);
    out_weight = next(d * s.query_width());
    q_norm_weight = next(s.qk_norm ? s.head_dim : 0);
    k_norm_weight = next(s.qk_norm ? s.head_dim : 0);
    norm2_weight = next(d);
    gate_up_weight = next(2 * s.d_ff * d);
    down_weight = next(d * s.d_ff);
  }
};

/// What the forward pass keeps. With qk_norm `qkv` holds queries and keys before their norm,
/// `query` and `key` after norm and rotation; otherwise they are rotated in place inside `qkv`.
/// Operands of products are stored as T. The backward pass puts gradients where it has read what
/// was kept: those of the activated feed-forward layer and of the attended values over `activated`,
/// that of queries, keys and values over `gate_up`. When weights wait, `activated` and the gradient
/// in `gate_up` stay, that of queries, keys and values lies over `qkv`, that of the attention's
/// output over `middle`. Under LayerKeeps::kProducts the norms' outputs and `activated` are made
/// again in scratch.
template <typename T>
struct LlamaMemory {
  using Real = kernels::RealOf<T>;
  Real *rstd1, *q_rstd, *k_rstd, *lse, *middle, *rstd2;
  T *normed1, *qkv, *query, *key, *attended, *normed2, *gate_up, *activated;

  /// own: rows of norms and of the stream.
  LlamaMemory(Carver& carver, const ModelShape& s, std::int64_t rows, std::int64_t own,
              LayerKeeps keeps) {
    const bool all = keeps == LayerKeeps::kAll;
    const std::int64_t normed_heads = s.qk_norm ? rows : 0;
    rstd1 = carver.take<Real>(own);
    normed1 = carver.take<T>(all ? own * s.d_model : 0);
    qkv = carver.take<T>(rows * s.qkv_width());
    query = carver.take<T>(normed_heads * s.query_width());
    key = carver.take<T>(normed_heads * s.key_width());
    q_rstd = carver.take<Real>(normed_heads * s.heads);
    k_rstd = carver.take<Real>(normed_heads * s.kv_heads);
    attended = carver.take<T>(rows * s.query_width());
    lse = carver.take<Real>(rows * s.heads);
    middle = carver.take<Real>(own * s.d_model);
    rstd2 = carver.take<Real>(own);
    normed2 = carver.take<T>(all ? own * s.d_model : 0);
    gate_up = carver.take<T>(rows * std::max(2 * s.d_ff, s.qkv_width()));
    activated = carver.take<T>(all ? rows * std::max(s.d_ff, s.query_width()) : 0);
  }
};

/// Scratch of the backward pass: of heads with qk_norm only; `d_wide` and `d_qkv` when weights
/// wait, in place of `activated` and `gate_up`. Where `activated` is made again, in the forward
/// pass too, it is the beginning of scratch and so `d_wide`.
template <typename T>
struct LlamaScratch {
  T *d_wide, *d_query, *d_key, *raw, *d_qkv;

  LlamaScratch(Carver& carver, const ModelShape& s, std::int64_t rows, BackwardPart part,
               LayerKeeps keeps) {
    const std::int64_t normed_heads = s.qk_norm ? rows : 0;
    const std::int64_t split = part == BackwardPart::kInput ? rows : 0;
    const std::int64_t wide = keeps == LayerKeeps::kProducts ? rows : split;
    d_wide = carver.take<T>(wide * std::max(s.d_ff, s.query_width()));
    d_query = carver.take<T>(normed_heads * s.query_width());
    d_key = carver.take<T>(normed_heads * s.key_width());
    raw = carver.take<T>(normed_heads * s.query_width());
    d_qkv = carver.take<T>(split * s.qkv_width());
  }
};

}  // namespace isthmus
