// SPDX-License-Identifier: Apache-2.0
// Sampling tokens from a trained model. Each token is drawn with a number that is a function of
// (seed, position), so the same parameters and seed give the same text. Keys and values of earlier
// tokens are kept in a cache (inner/model/key_value_cache.h), or the model processes the whole
// context for every token. Any thread may call these functions; they own their state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "inner/model/model_shape.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

class Checkpoint;

/// Sampling rule, in the order of transformers' warpers: temperature, top_k, top_p.
struct Sampling {
  double temperature = 0.8;  // 0: always the most likely token (the lowest id of equals)
  std::int64_t top_k = 40;   // draw only among the k most likely; 0: among all
  /// Draw among the most likely tokens whose probabilities together reach top_p; 1: among all.
  double top_p = 1;
};

struct GenerateOptions {
  std::int64_t tokens = 200;  // number of tokens to add
  Sampling sampling;
  std::uint64_t seed = 0;
  int threads = 1;
};

/// The token that `uniform` in [0, 1) draws. REQUIRES: logits not empty, finite; top_p > 0.
[[nodiscard]] std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling,
                                      double uniform);

/// Reason for the end of a continuation.
enum class GenerateEnd { kTokens, kEndToken, kPositions, kStopped };

struct ContinueOptions : GenerateOptions {
  bool cache = true;                           // keep keys and values in a cache
  std::span<const std::int32_t> end_tokens;    // each of these ends the text and is not part of it
  std::function<bool(std::int32_t)> on_token;  // called with each token; false stops
};

/// Tokens that follow `prompt` until an end token, options.tokens tokens, or the last position of
/// the model. THROWS: ConfigError naming a prompt that is empty, longer than the model's positions
/// or outside of its vocabulary; RunError when the model's logits are not finite.
GenerateEnd continue_prompt(const ModelShape& shape, const ParameterSource& parameters,
                            std::span<const std::int32_t> prompt, const ContinueOptions& options);

/// `options.tokens` tokens that follow `prompt`, which is not repeated. Only the last
/// shape.positions tokens are seen. An empty prompt starts from token 0.
/// THROWS: ConfigError naming a prompt token that is not in the vocabulary, RunError when the
/// model's logits are not finite.
[[nodiscard]] std::vector<std::int32_t> generate(const ModelShape& shape,
                                                 const ParameterSource& parameters,
                                                 std::span<const std::int32_t> prompt,
                                                 const GenerateOptions& options);

/// `options.tokens` tokens that follow `prompt`, from the outer parameters of a run's checkpoint.
/// THROWS: as generate.
[[nodiscard]] std::vector<std::int32_t> generate_from(const Config& config,
                                                      const Checkpoint& checkpoint,
                                                      std::span<const std::int32_t> prompt,
                                                      const GenerateOptions& options);

}  // namespace isthmus
