// SPDX-License-Identifier: Apache-2.0
// Architecture of a model family beyond `model.arch`: the differences between published decoders
// (Mistral, Qwen, OLMo, Phi, GPT-NeoX, Gemma, ...), one field each. A model folder's config.json
// sets all of them (table: src/inner/hf/hf_families.cpp); no TOML key does. Plain data;
// docs/models.md lists the families.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isthmus {

/// How rotary frequencies are derived from their base: `rope_type` of transformers.
enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn };

/// Parameters of a RopeType, under the names of transformers.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  double original_positions = 0;  // original_max_position_embeddings: llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: the ramp's bounds are rounded to
                                                     // integers
  double attention_factor = 1;                       // yarn: factor on cosine and sine
  bool operator==(const RopeScaling&) const = default;
};

/// Position of a layer's norms relative to attention and feed-forward.
enum class LayerNorms {
  kBefore,  // on their inputs
  kAfter,   // on their outputs, before the residual addition (OLMo 2)
  kAround,  // on both (Gemma 2 and 3)
};

/// The feed-forward part: act(gate) * up, or act(up) without a gate.
enum class FeedForward { kSwiGlu, kGeGluTanh, kGelu, kGeluTanh };

/// Properties of one layer that differ between layers.
struct LayerRule {
  bool rotates = true;  // false: queries and keys carry no position (NoPE)
  bool local = false;   // attention sees only ModelFamily::window keys, rotated with the local base
  bool operator==(const LayerRule&) const = default;
};

/// The default is a plain Llama or GPT-2.
struct ModelFamily {
  std::string name;  // model_type of config.json; empty: described by model.arch and qk_norm
  RopeScaling rope;
  std::int64_t rotary_dim = 0;    // leading values of a head that are rotated; 0: all
  double local_rope_theta = 0;    // RoPE base of local layers, unscaled; 0: as the other layers
  std::int64_t window = 0;        // keys that a local layer sees, including its own position
  std::vector<LayerRule> layers;  // one entry a layer; empty: all layers rotate and see all earlier
                                  // keys
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool fused_products = false;     // q, k, v in one tensor, gate and up in another (Phi-3)
  bool interleaved_heads = false;  // q, k, v of all heads in one tensor, head by head (NeoX)
  bool wide_qk_norm = false;       // with qk_norm: one norm over all heads together (OLMo 2)
  bool layer_norm = false;         // LayerNorm with biases in place of RMSNorm
  bool parallel_residual = false;  // attention and feed-forward read the same stream
  double norm_weight_offset = 0;   // added to the weights of norms: 1 for Gemma
  LayerNorms norms = LayerNorms::kBefore;
  FeedForward feed_forward = FeedForward::kSwiGlu;
  double query_scalar = 0;     // attention logits are divided by sqrt(query_scalar); 0:
                               // sqrt(head_dim)
  double attention_cap = 0;    // attention logits become cap * tanh(logit / cap); 0: unchanged
  double logit_cap = 0;        // the same for the output head
  double embedding_scale = 1;  // factor on the token embeddings
  bool operator==(const ModelFamily&) const = default;
};

}  // namespace isthmus
