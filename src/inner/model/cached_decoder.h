// SPDX-License-Identifier: Apache-2.0
// Decoding token by token with a cache of keys and values, so a token costs one row of each matrix
// product instead of a pass over the whole context. Computes the same logits as
// LanguageModel::next_token_logits, to rounding. Meant for trying a model, not for serving: one
// sequence, float, CPU. One thread drives a decoder; its kernels use the team's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"
#include "kernels/thread_team.h"

namespace isthmus {

class CachedDecoder {
 public:
  /// True if a decoder supports the shape: GPT-2, Llama, and Llama with norms on queries and keys.
  [[nodiscard]] static bool knows(const ModelShape& shape);

  /// Borrows both references. positions: largest number of tokens of a sequence; the cache has 2 *
  /// layers * positions * key_width floats. REQUIRES: knows(layout.shape()), and positions is at
  /// most shape.positions. THROWS: std::bad_alloc.
  CachedDecoder(const ModelLayout& layout, Weights<float>& weights, std::int64_t positions);
  ~CachedDecoder();
  CachedDecoder(const CachedDecoder&) = delete;
  CachedDecoder& operator=(const CachedDecoder&) = delete;

  /// Number of tokens in the cache.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  /// Appends `tokens` to the sequence; logits (vocab,) follow the last of them. REQUIRES: at least
  /// one token, ids in [0, vocab), seen() + tokens at most `positions`. DETERMINISM: results depend
  /// neither on the team's size nor, except for rounding in products of other sizes, on how a
  /// sequence is split into calls.
  void logits(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens, float* logits);

 private:
  struct Buffers;
  /// The rows of a pass, after seen_ tokens.
  struct Rows {
    kernels::ThreadTeam& team;
    std::int64_t count;
  };
  void embed(const Rows& rows, const std::int32_t* ids);
  void llama_layer(const Rows& rows, std::int64_t layer);
  void gpt2_layer(const Rows& rows, std::int64_t layer);
  void keep_keys(const Rows& rows, std::int64_t layer);
  void attend(const Rows& rows, std::int64_t layer);
  void head(const Rows& rows, float* logits);

  const ModelLayout& layout_;
  const ModelShape& shape_;
  Weights<float>& weights_;
  std::int64_t positions_;
  std::int64_t seen_ = 0;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace isthmus
