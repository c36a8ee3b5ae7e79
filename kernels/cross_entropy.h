// SPDX-License-Identifier: Apache-2.0
// Output head and mean cross-entropy together: logits = hidden W^T exist for one chunk of tokens at
// a time, and the chunk's gradients are computed at once, so memory is chunk x V in place of B T x
// V.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/thread_team.h"

namespace isthmus::kernels {

inline constexpr std::int64_t kWeightRowsValues = std::int64_t{1} << 19;

/// A token's softmax statistics over some rows of the vocabulary, which ranks that share it
/// combine.
struct TokenSoftmax {
  double top = 0;           // largest logit
  double total = 0;         // sum of exp(logit - top)
  double target_logit = 0;  // 0 if another rank has the target
};

template <typename Real>
struct CrossEntropy {
  std::int64_t tokens = 0, channels = 0, vocab = 0;
  const Real* hidden = nullptr;  // (tokens, channels)
  const Real* weight = nullptr;  // (vocab, channels)
  /// Forward only, in place of `weight`: its rows [first, first + count), valid until the next
  /// call. Requested in order, kWeightRowsValues values or 32 rows at a time, once for each chunk
  /// of tokens. The result has the same bits.
  std::function<const Real*(std::int64_t first, std::int64_t count)> weight_rows;
  const std::int32_t* targets = nullptr;  // (tokens,); negative: ignored. REQUIRES: < vocab
  /// Vocabulary-parallel (Megatron-LM arXiv:1909.08053 section 3): `weight` holds rows [first_row,
  /// first_row + vocab) of all_rows, targets are indices in all_rows, and `join` replaces each
  /// token's softmax over the rank's rows by that over all rows. It is called once per chunk, on
  /// the caller's thread. d_hidden is then the rank's share.
  std::int64_t first_row = 0;
  std::int64_t all_rows = 0;       // 0: vocab
  std::int64_t largest_share = 0;  // rows of the rank with most rows: it decides the chunks of
                                   // tokens, equal on all ranks
  std::function<void(std::span<TokenSoftmax>)> join;
  double gradient_scale = 1;  // d(objective) / d(sum of losses), usually 1 / (tokens in the mean)
  double cap = 0;             // logits become cap * tanh(logit / cap); 0: unchanged
  double z_loss = 0;          // weight of log(Z)^2, added to each token's loss
  bool bf16 = false;          // matrix products have bfloat16 operands; logits and softmax stay
                              // Real
  Real* d_hidden = nullptr;   // (tokens, channels): overwritten; may be hidden; null: forward only
  Real* d_weight = nullptr;   // (vocab, channels): added to; null: not requested
};

struct CrossEntropySum {
  double loss = 0;           // sum of -log p[target] over counted tokens, in nats
  double z_loss = 0;         // sum of z_loss * log(Z)^2
  std::int64_t counted = 0;  // tokens with a non-negative target
};

/// Tokens in a chunk: 16 MiB of logits, and at least 256 tokens.
[[nodiscard]] std::int64_t cross_entropy_chunk(std::int64_t tokens, std::int64_t vocab);

/// DETERMINISM: chunks of tokens are fixed by the shape, in order; the loss is summed in double in
/// token order.
template <typename Real>
CrossEntropySum cross_entropy(ThreadTeam& team, const CrossEntropy<Real>& ce);

template <typename Real>
CrossEntropySum cross_entropy_reference(ThreadTeam& team, const CrossEntropy<Real>& ce);

}  // namespace isthmus::kernels
