// SPDX-License-Identifier: Apache-2.0
// Sampling tokens from a trained model. Each token is drawn with a number that is a function of
// (seed, position), so the same parameters and seed give the same text. The whole context goes
// through the model for every token; there is no cache of keys and values.
// Any thread may call these functions; they own what they need.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inner/model/model_shape.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

class Checkpoint;

struct GenerateOptions {
  std::int64_t tokens = 200;  // to add
  double temperature = 0.8;   // 0: always the most likely token (the lowest id of equals)
  std::int64_t top_k = 40;    // draw among the k most likely only; 0: among all
  std::uint64_t seed = 0;
  int threads = 1;
};

/// The token that `uniform` in [0, 1) draws from softmax(logits / temperature) over the top_k.
/// REQUIRES: logits not empty, finite.
[[nodiscard]] std::int32_t draw_token(std::span<const float> logits, double temperature,
                                      std::int64_t top_k, double uniform);

/// `options.tokens` tokens that follow `prompt`, which is not repeated. Only the last
/// shape.positions tokens are seen. An empty prompt starts from token 0.
/// THROWS: ConfigError naming a prompt token that is not in the vocabulary, RunError when the
/// model's logits are not finite.
[[nodiscard]] std::vector<std::int32_t> generate(const ModelShape& shape,
                                                 const ParameterSource& parameters,
                                                 std::span<const std::int32_t> prompt,
                                                 const GenerateOptions& options);

/// Bytes that follow `prompt`, from the outer parameters of a byte-level run's checkpoint.
[[nodiscard]] std::vector<std::int32_t> generate_text(const Config& config,
                                                      const Checkpoint& checkpoint,
                                                      std::string_view prompt, std::int64_t tokens,
                                                      std::uint64_t seed);

}  // namespace isthmus
