// SPDX-License-Identifier: Apache-2.0
// What the layers of a model family compute beyond `model.arch`: the differences between published
// decoders (Mistral, Qwen, OLMo, Phi, GPT-NeoX, Gemma, ...), one field each. A model folder's
// config.json decides all of them (src/inner/hf/hf_families.cpp has the table); no key of a TOML
// file does. Plain data; docs/models.md lists the families.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isthmus {

/// How rotary frequencies follow from their base: `rope_type` of transformers.
enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn };

/// Parameters of a RopeType, under the names of transformers.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  double original_positions = 0;  // original_max_position_embeddings: llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: whole numbers bound the ramp
  double attention_factor = 1;                       // yarn: cosine and sine are multiplied by it
  bool operator==(const RopeScaling&) const = default;
};

/// Where a layer has norms of the residual stream.
enum class LayerNorms {
  kBefore,  // of what enters attention and feed-forward
  kAfter,   // of what they add to the stream (OLMo 2)
  kAround,  // of both (Gemma 2 and 3)
};

/// The feed-forward part: act(gate) up, or act(up) without a gate.
enum class FeedForward { kSwiGlu, kGeGluTanh, kGelu, kGeluTanh };

/// What one layer does differently from its neighbours.
struct LayerRule {
  bool rotates = true;  // false: queries and keys carry no position (NoPE)
  bool local = false;   // attention sees ModelFamily::window keys alone, rotated by the local base
  bool operator==(const LayerRule&) const = default;
};

/// The default is a plain Llama or GPT-2.
struct ModelFamily {
  std::string name;  // model_type of config.json; empty: model.arch and qk_norm say all
  RopeScaling rope;
  std::int64_t rotary_dim = 0;    // values of a head that are rotated, the first ones; 0: all
  double local_rope_theta = 0;    // base of local layers, unscaled; 0: as the other layers
  std::int64_t window = 0;        // keys that a local layer sees, its own position included
  std::vector<LayerRule> layers;  // one a layer; empty: all rotate and see every key before them
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool fused_products = false;     // q, k, v in one tensor, gate and up in another (Phi-3)
  bool interleaved_heads = false;  // one tensor, query, key and value of each head together (NeoX)
  bool wide_qk_norm = false;       // with qk_norm: over all heads together (OLMo 2)
  bool layer_norm = false;         // LayerNorm with biases in place of RMSNorm
  bool parallel_residual = false;  // attention and feed-forward read the same stream
  double norm_weight_offset = 0;   // added to the weights of norms: 1 in Gemma
  LayerNorms norms = LayerNorms::kBefore;
  FeedForward feed_forward = FeedForward::kSwiGlu;
  double query_scalar = 0;     // logits of attention are divided by its root; 0: by head_dim's
  double attention_cap = 0;    // logits of attention are cap tanh(logit / cap); 0: as they are
  double logit_cap = 0;        // the same of the output head
  double embedding_scale = 1;  // of the embedded tokens
  bool operator==(const ModelFamily&) const = default;
};

}  // namespace isthmus
