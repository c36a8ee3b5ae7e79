// SPDX-License-Identifier: Apache-2.0
// Decoding token by token: keys and values of the tokens so far are kept, so a token costs one row
// of each product instead of a pass over the whole context. It computes what
// LanguageModel::next_token_logits does, to rounding. It is for trying a model, not for serving
// one: one sequence, float, CPU. One thread drives a decoder; the kernels spread over its team.
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
  /// True where a decoder has the blocks of the shape: GPT-2, Llama, and Llama with norms on
  /// queries and keys. A shape that says anything else has no decoder.
  [[nodiscard]] static bool knows(const ModelShape& shape);

  /// Both are borrowed. positions: most tokens of one sequence; the cache has 2 * layers *
  /// positions * key_width floats. REQUIRES: knows(layout.shape()), and positions is at most
  /// shape.positions. THROWS: std::bad_alloc.
  CachedDecoder(const ModelLayout& layout, Weights<float>& weights, std::int64_t positions);
  ~CachedDecoder();
  CachedDecoder(const CachedDecoder&) = delete;
  CachedDecoder& operator=(const CachedDecoder&) = delete;

  /// Tokens that the cache holds.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  /// The sequence goes on with `tokens`; logits (vocab,) that follow the last of them.
  /// REQUIRES: at least one token, ids in [0, vocab), seen() + tokens at most `positions`.
  /// DETERMINISM: results depend on neither the team's size nor on how a sequence is cut into
  /// calls, but for rounding of products of other sizes.
  void logits(kernels::ThreadTeam& team, std::span<const std::int32_t> tokens, float* logits);

 private:
  struct Buffers;
  /// The rows of a pass; seen_ tokens came before them.
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
