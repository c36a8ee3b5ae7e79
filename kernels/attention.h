// SPDX-License-Identifier: Apache-2.0
// Causal self-attention with grouped queries, forward and backward, without a (T, T) matrix: online
// softmax over blocks of keys (Milakov & Gimelshein arXiv:1805.02867; Dao arXiv:2307.08691). The
// forward pass keeps each row's log-sum-exp, from which the backward pass recomputes the
// probabilities. The caller owns all memory; q, k, v may be views of a fused (B, T, 3C) buffer.
//
// Row t sees the keys from AttentionShape::first_key to t. All loops use only that function, and
// require only that first_key does not decrease with t. If documents share a sequence it is the
// document's first row; with a sliding window of w keys the larger of that and t + 1 - w.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// A (batch, token, head, head_dim) array by strides, in elements; head_dim is contiguous.
template <typename Real>
struct HeadsView {
  Real* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  [[nodiscard]] constexpr Real* at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return data + b * batch_stride + t * token_stride + h * head_stride;
  }
};

/// View of `heads` heads of size head_dim that start at `data` in rows of `row` elements, one row
/// per token: row = heads * head_dim for a separate buffer, 3C for a fused one.
template <typename Real>
[[nodiscard]] HeadsView<Real> heads_in_rows(Real* data, std::int64_t seq, std::int64_t row,
                                            std::int64_t head_dim) {
  return {data, seq * row, row, head_dim};
}

struct AttentionShape {
  std::int64_t batch = 0, seq = 0;
  std::int64_t q_heads = 0, kv_heads = 0;  // query head h reads key head h / (q_heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 0;  // usually 1 / sqrt(head_dim)
  /// (batch, seq): the first row of each row's document; borrowed, null: one document a sequence.
  /// REQUIRES: at most t, and not below that of row t - 1.
  const std::int32_t* document_starts = nullptr;
  std::int64_t window = 0;  // largest number of keys that a row sees, including its own position;
                            // 0: no bound
  double cap = 0;           // logits become cap * tanh(logit / cap); 0: unchanged

  /// The first key that query row t of sequence b sees; the last is t.
  [[nodiscard]] constexpr std::int64_t first_key(std::int64_t b, std::int64_t t) const {
    const std::int64_t start = document_starts == nullptr ? 0 : document_starts[b * seq + t];
    return window == 0 || t - window < start ? start : t - window + 1;
  }
  bool operator==(const AttentionShape&) const = default;
};

/// out[b, t, h] = sum over first_key(b, t) <= s <= t of softmax_s(scale q[b, t, h] . k[b, s, h'])
/// v[b, s, h'], with capped logits if there is a cap; lse (batch, q_heads, seq): log of the
/// softmax's denominator. T is double, float or Bf16; with Bf16 matrix products may round their
/// operands to it, softmax and sums are float. REQUIRES: q_heads a multiple of kv_heads; outputs
/// overlap no input.
template <typename T>
void attention_forward(ThreadTeam& team, const AttentionShape& shape, HeadsView<const T> q,
                       HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                       RealOf<T>* lse);

template <typename T>
struct AttentionBackward {
  HeadsView<const T> q, k, v, out, d_out;  // as in the forward pass; d_out: the gradient of out
  const RealOf<T>* lse = nullptr;
  HeadsView<T> d_q, d_k, d_v;  // overwritten
};

/// DETERMINISM: key gradients add query blocks in order; no bit depends on the team's size.
template <typename T>
void attention_backward(ThreadTeam& team, const AttentionShape& shape,
                        const AttentionBackward<T>& a);

template <typename Real>
void attention_forward_reference(ThreadTeam& team, const AttentionShape& shape,
                                 HeadsView<const Real> q, HeadsView<const Real> k,
                                 HeadsView<const Real> v, HeadsView<Real> out, Real* lse);
template <typename Real>
void attention_backward_reference(ThreadTeam& team, const AttentionShape& shape,
                                  const AttentionBackward<Real>& a);

}  // namespace isthmus::kernels
