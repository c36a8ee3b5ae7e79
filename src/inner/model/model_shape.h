// SPDX-License-Identifier: Apache-2.0
// The sizes of a model with nothing left open: what [model] means once defaults are filled in.
// Plain data; pure functions.
#pragma once

#include <cstdint>

#include "isthmus/config.h"

namespace isthmus {

enum class Architecture { kGpt2, kLlama };

struct ModelShape {
  Architecture architecture = Architecture::kGpt2;
  std::int64_t layers = 0;
  std::int64_t d_model = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t d_ff = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;  // that the model knows; rows of GPT-2's position table
  std::int64_t longest = 0;    // sequence of a pass, at most `positions`: rows of rotary tables
  bool tied = true;
  bool qk_norm = false;
  double z_loss = 0;
  double rope_theta = 10000;
  double norm_eps = 1e-5;

  bool operator==(const ModelShape&) const = default;
  /// Columns of all query heads, and of all key (or value) heads.
  [[nodiscard]] std::int64_t query_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t key_width() const { return kv_heads * head_dim; }
  /// Columns of query, key and value side by side.
  [[nodiscard]] std::int64_t qkv_width() const { return query_width() + 2 * key_width(); }
};

/// Fills what `config` leaves open (`train_context` where model.context is 0) and checks that the
/// sizes fit together. Passes are over `train_context` tokens at most. THROWS: ConfigError naming
/// the key, its value, the rule and the remedy.
[[nodiscard]] ModelShape model_shape(const ModelConfig& config, std::int64_t train_context);

}  // namespace isthmus
