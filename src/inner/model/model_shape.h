// SPDX-License-Identifier: Apache-2.0
// The sizes of a model, all of them set: [model] after defaults are filled in. Plain data; pure
// functions.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "isthmus/config.h"

namespace isthmus {

enum class Architecture { kGpt2, kLlama };

/// Matrix products of a layer that can have a low-rank adapter (inner/model/lora.h), in the order
/// of their tensors.
enum class LoraTarget { kQuery, kKey, kValue, kOut, kGate, kUp, kDown };
inline constexpr std::size_t kLoraTargets = 7;
/// Their names inside a layer: "self_attn.q_proj".
[[nodiscard]] std::string_view lora_target_name(LoraTarget target);

struct LoraShape {
  std::int64_t rank = 0;  // 0: no adapters
  double alpha = 0;
  std::array<bool, kLoraTargets> targets = {};
  bool operator==(const LoraShape&) const = default;
};

struct ModelShape {
  Architecture architecture = Architecture::kGpt2;
  std::int64_t layers = 0;
  std::int64_t d_model = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t d_ff = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;  // of the model; rows of GPT-2's position table
  std::int64_t longest = 0;    // longest sequence of a pass, at most `positions`: rows of rotary
                               // tables
  bool tied = true;
  bool qk_norm = false;
  double z_loss = 0;
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  LoraShape lora = {};  // rank > 0: only adapters are trained, and all else is frozen
  ModelFamily family;

  bool operator==(const ModelShape&) const = default;
  /// Columns of all query heads, and of all key (or value) heads.
  [[nodiscard]] std::int64_t query_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t key_width() const { return kv_heads * head_dim; }
  /// Columns of the fused query, key and value matrix.
  [[nodiscard]] std::int64_t qkv_width() const { return query_width() + 2 * key_width(); }
  /// Columns of the fused gate and up matrix, or of up without a gate.
  [[nodiscard]] std::int64_t up_width() const { return gated() ? 2 * d_ff : d_ff; }
  [[nodiscard]] bool gated() const {
    return architecture == Architecture::kLlama && (family.feed_forward == FeedForward::kSwiGlu ||
                                                    family.feed_forward == FeedForward::kGeGluTanh);
  }
  /// LayerNorm with biases; else RMSNorm.
  [[nodiscard]] bool layer_norm() const {
    return architecture == Architecture::kGpt2 || family.layer_norm;
  }
  /// Norms before attention and feed-forward; norms on their outputs.
  [[nodiscard]] bool norms_before() const { return family.norms != LayerNorms::kAfter; }
  [[nodiscard]] bool norms_after() const { return family.norms != LayerNorms::kBefore; }
  /// Number of values of a head that rotary embedding rotates.
  [[nodiscard]] std::int64_t rotary_dim() const {
    return family.rotary_dim > 0 ? family.rotary_dim : head_dim;
  }
  /// Number of rows that a norm of queries has for each token; number of values of such a row.
  [[nodiscard]] std::int64_t query_norms() const { return family.wide_qk_norm ? 1 : heads; }
  [[nodiscard]] std::int64_t key_norms() const { return family.wide_qk_norm ? 1 : kv_heads; }
  /// Rule of layer `layer`, counted from the model's first.
  [[nodiscard]] LayerRule rule(std::int64_t layer) const {
    return family.layers.empty() ? LayerRule{} : family.layers[static_cast<std::size_t>(layer)];
  }
  /// Keys that the layer sees, including its own position; 0: all earlier keys.
  [[nodiscard]] std::int64_t window(std::int64_t layer) const {
    return rule(layer).local && family.window < longest ? family.window : 0;
  }
  /// Factor of the products of queries and keys.
  [[nodiscard]] double attention_scale() const {
    const auto width = static_cast<double>(head_dim);
    return 1 / std::sqrt(family.query_scalar > 0 ? family.query_scalar : width);
  }
};

/// How errors name the sizes: keys of a configuration, or what the sizes were read from.
struct SizeNames {
  std::string_view layers = "model.n_layers";
  std::string_view d_model = "model.d_model";
  std::string_view heads = "model.n_heads";
  std::string_view kv_heads = "model.n_kv_heads";
  std::string_view head_dim = "model.head_dim";
  std::string_view d_ff = "model.d_ff";
  std::string_view vocab = "model.vocab";
  std::string_view context = "model.context";
};

/// Fills in sizes that `config` leaves open (context `train_context` if model.context is 0) and
/// checks that the sizes fit together. Passes have at most `train_context` tokens. THROWS:
/// ConfigError naming the key, its value, the rule and the remedy.
[[nodiscard]] ModelShape model_shape(const ModelConfig& config, std::int64_t train_context,
                                     const SizeNames& names = {});

/// The shape of the adapters' base model.
[[nodiscard]] inline ModelShape without_lora(ModelShape shape) {
  shape.lora = {};
  return shape;
}

}  // namespace isthmus
