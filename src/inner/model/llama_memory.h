// SPDX-License-Identifier: Apache-2.0
// Layout of a Llama layer's weights, and of the memory that it keeps between its passes. Pointers
// only; the caller owns the memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "inner/model/arena.h"
#include "inner/model/model_block.h"
#include "inner/model/model_shape.h"
#include "kernels/bf16.h"

namespace isthmus {

/// Pointers into a layer's weights, or gradients, in the order of llama_layer_tensors. The q, k and
/// v weights are contiguous and form one (qkv_width, d) matrix, as do their biases; gate and up
/// form one (up_width, d) matrix. Tensors that a family does not have are empty.
template <typename T>
struct LlamaTensors {
  T *norm1_weight, *norm1_bias, *qkv_weight, *out_weight, *qkv_bias, *out_bias;
  T *q_norm_weight, *k_norm_weight, *after1_weight;
  T *norm2_weight, *norm2_bias, *gate_up_weight, *down_weight, *gate_up_bias, *down_bias;
  T* after2_weight;

  LlamaTensors(T* at, const ModelShape& s) {
    const std::int64_t d = s.d_model;
    const ModelFamily& family = s.family;
    const auto next = [&at](std::int64_t count) {
      T* tensor = at;
      if (at != nullptr) at += count;  // null: frozen weights have no gradients
      return tensor;
    };
    norm1_weight = next(s.norms_before() ? d : 0);
    norm1_bias = next(s.layer_norm() ? d : 0);
    qkv_weight = next(s.qkv_width() * d);
    out_weight = next(d * s.query_width());
    qkv_bias = next(family.qkv_bias ? s.qkv_width() : 0);
    out_bias = next(family.out_bias ? d : 0);
    q_norm_weight = next(s.qk_norm ? s.query_width() / s.query_norms() : 0);
    k_norm_weight = next(s.qk_norm ? s.key_width() / s.key_norms() : 0);
    after1_weight = next(s.norms_after() ? d : 0);
    norm2_weight = next(s.norms_before() ? d : 0);
    norm2_bias = next(s.layer_norm() ? d : 0);
    gate_up_weight = next(s.up_width() * d);
    down_weight = next(d * s.d_ff);
    gate_up_bias = next(family.mlp_bias ? s.up_width() : 0);
    down_bias = next(family.mlp_bias ? d : 0);
    after2_weight = next(s.norms_after() ? d : 0);
  }
};

/// What the forward pass keeps. With qk_norm `qkv` holds queries and keys before their norm, and
/// `query` and `key` hold them after norm and rotation; otherwise they are rotated in place inside
/// `qkv`. Operands of matrix products are stored as T. The backward pass overwrites kept data that
/// it has read with gradients:
/// - over `activated`: the gradients of the activated feed-forward layer and of the attended
///   values;
/// - over `gate_up`: the gradient of queries, keys and values;
/// - over `branch1` and `branch2`: the gradients of the outputs before after-norms.
/// With a split backward pass, `activated` and the gradient in `gate_up` stay. The gradient of
/// queries, keys and values is then over `qkv`, and that of the attention's output over `middle`
/// (with after-norms over `branch1`). With LayerKeeps::kProducts the norms' outputs and `activated`
/// are recomputed in scratch.
template <typename T>
struct LlamaMemory {
  using Real = kernels::RealOf<T>;
  Real *mean1, *rstd1, *q_rstd, *k_rstd, *lse, *middle, *mean2, *rstd2;
  Real *branch1, *after1_rstd, *branch2, *after2_rstd;  // inputs of the after-norms, and these
                                                        // norms' statistics
  T *normed1, *qkv, *query, *key, *attended, *normed2, *gate_up, *activated;

  /// own: rows of norms and of the residual stream.
  LlamaMemory(ArenaLayout& arena_layout, const ModelShape& s, std::int64_t rows, std::int64_t own,
              LayerKeeps keeps) {
    const bool all = keeps == LayerKeeps::kAll;
    const std::int64_t normed_heads = s.qk_norm ? rows : 0;
    const std::int64_t means = s.layer_norm() ? own : 0;
    const std::int64_t after = s.norms_after() ? own : 0;
    rstd1 = arena_layout.take<Real>(own);
    normed1 = arena_layout.take<T>(all ? own * s.d_model : 0);
    qkv = arena_layout.take<T>(rows * s.qkv_width());
    query = arena_layout.take<T>(normed_heads * s.query_width());
    key = arena_layout.take<T>(normed_heads * s.key_width());
    q_rstd = arena_layout.take<Real>(normed_heads * s.query_norms());
    k_rstd = arena_layout.take<Real>(normed_heads * s.key_norms());
    attended = arena_layout.take<T>(rows * s.query_width());
    lse = arena_layout.take<Real>(rows * s.heads);
    middle = arena_layout.take<Real>(own * s.d_model);
    rstd2 = arena_layout.take<Real>(own);
    normed2 = arena_layout.take<T>(all ? own * s.d_model : 0);
    gate_up = arena_layout.take<T>(rows * std::max(s.up_width(), s.qkv_width()));
    activated = arena_layout.take<T>(all ? rows * std::max(s.d_ff, s.query_width()) : 0);
    mean1 = arena_layout.take<Real>(means);
    mean2 = arena_layout.take<Real>(means);
    branch1 = arena_layout.take<Real>(after * s.d_model);
    after1_rstd = arena_layout.take<Real>(after);
    branch2 = arena_layout.take<Real>(after * s.d_model);
    after2_rstd = arena_layout.take<Real>(after);
  }
};

/// Scratch of the backward pass: heads' gradients with qk_norm only; `d_wide` and `d_qkv` with a
/// split backward pass, in place of `activated` and `gate_up`. If `activated` is recomputed, also
/// in the forward pass, it is at the beginning of scratch, as `d_wide`.
template <typename T>
struct LlamaScratch {
  T *d_wide, *d_query, *d_key, *raw, *d_qkv;

  LlamaScratch(ArenaLayout& arena_layout, const ModelShape& s, std::int64_t rows, BackwardPart part,
               LayerKeeps keeps) {
    const std::int64_t normed_heads = s.qk_norm ? rows : 0;
    const std::int64_t split = part == BackwardPart::kInput ? rows : 0;
    const std::int64_t wide = keeps == LayerKeeps::kProducts ? rows : split;
    d_wide = arena_layout.take<T>(wide * std::max(s.d_ff, s.query_width()));
    d_query = arena_layout.take<T>(normed_heads * s.query_width());
    d_key = arena_layout.take<T>(normed_heads * s.key_width());
    raw = arena_layout.take<T>(normed_heads * s.query_width());
    d_qkv = arena_layout.take<T>(split * s.qkv_width());
  }
};

}  // namespace isthmus
