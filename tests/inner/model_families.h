// SPDX-License-Identifier: Apache-2.0
// A small model of each family, as its folder would set it: for tests that need every block.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// Families whose layers compute something of their own.
inline std::vector<std::string> family_names() {
  return {"llama-yarn", "mistral",     "qwen2", "smollm3", "phi3",  "olmo2",
          "neox",       "neox-serial", "gemma", "gemma2",  "gemma3"};
}

/// `model` (arch = "llama", sizes given) with the layers of the family. Windows are 4 keys.
inline ModelConfig of_family(ModelConfig model, const std::string& name) {
  ModelFamily& f = model.family;
  f.name = name;
  const auto layers = static_cast<std::size_t>(model.layers);
  const auto local_where = [&](auto&& is_local) {
    f.window = 4;
    f.layers.resize(layers);
    for (std::size_t i = 0; i < layers; ++i) f.layers[i].local = is_local(i);
  };
  const bool gemma = name.starts_with("gemma");
  if (name == "llama-yarn") {
    f.rope = {.type = RopeType::kYarn,
              .factor = 4,
              .original_positions = 64,
              .beta_fast = 16,
              .attention_factor = 1.14};
    f.qkv_bias = f.out_bias = f.mlp_bias = true;
  } else if (name == "mistral") {
    local_where([](std::size_t) { return true; });
  } else if (name == "qwen2") {
    f.qkv_bias = true;
  } else if (name == "smollm3") {
    f.layers.resize(layers);
    for (std::size_t i = 0; i < layers; ++i) f.layers[i].rotates = i % 2 == 0;
  } else if (name == "phi3") {
    f.fused_products = true;
  } else if (name == "olmo2") {
    model.qk_norm = f.wide_qk_norm = true;
    f.norms = LayerNorms::kAfter;
  } else if (name.starts_with("neox")) {
    model.kv_heads = model.heads;
    f.qkv_bias = f.out_bias = f.mlp_bias = true;
    f.interleaved_heads = f.layer_norm = true;
    f.parallel_residual = name == "neox";
    f.feed_forward = name == "neox" ? FeedForward::kGelu : FeedForward::kGeluTanh;
    f.rotary_dim = 4;
  } else if (gemma) {
    f.norm_weight_offset = 1;
    f.feed_forward = FeedForward::kGeGluTanh;
    f.embedding_scale = std::sqrt(static_cast<double>(model.d_model));
  }
  if (name == "gemma2" || name == "gemma3") {
    f.norms = LayerNorms::kAround;
    f.query_scalar = 20;
    local_where([](std::size_t i) { return i % 2 == 0; });
  }
  if (name == "gemma2") {
    f.attention_cap = 1.5;
    f.logit_cap = 2.5;
  }
  if (name == "gemma3") {
    model.qk_norm = true;
    f.local_rope_theta = 500;
    f.rope = {.type = RopeType::kLinear, .factor = 4};
  }
  return model;
}

}  // namespace isthmus
