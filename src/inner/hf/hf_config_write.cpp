// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "inner/hf/hf_config.h"

namespace isthmus {
namespace {

using nlohmann::ordered_json;

ordered_json token(const std::optional<std::int64_t>& id) {
  return id ? ordered_json(*id) : ordered_json(nullptr);
}

ordered_json gpt2(const ModelShape& shape) {
  ordered_json config;
  config["architectures"] = {"GPT2LMHeadModel"};
  config["model_type"] = "gpt2";
  config["vocab_size"] = shape.vocab;
  config["n_positions"] = shape.positions;
  config["n_ctx"] = shape.positions;
  config["n_embd"] = shape.d_model;
  config["n_layer"] = shape.layers;
  config["n_head"] = shape.heads;
  // null stands for 4 n_embd.
  config["n_inner"] =
      shape.d_ff == 4 * shape.d_model ? ordered_json(nullptr) : ordered_json(shape.d_ff);
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = shape.norm_eps;
  // Our models train without dropout.
  config["embd_pdrop"] = 0.0;
  config["attn_pdrop"] = 0.0;
  config["resid_pdrop"] = 0.0;
  return config;
}

ordered_json llama(const ModelShape& shape) {
  ordered_json config;
  config["architectures"] = {shape.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
  config["model_type"] = shape.qk_norm ? "qwen3" : "llama";
  config["vocab_size"] = shape.vocab;
  config["max_position_embeddings"] = shape.positions;
  config["hidden_size"] = shape.d_model;
  config["intermediate_size"] = shape.d_ff;
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = shape.norm_eps;
  config["rope_theta"] = shape.rope_theta;
  config["rope_parameters"] = {{"rope_theta", shape.rope_theta}, {"rope_type", "default"}};
  config["attention_bias"] = false;
  config["attention_dropout"] = 0.0;
  if (!shape.qk_norm) config["mlp_bias"] = false;
  return config;
}

}  // namespace

std::string hf_config_text(const ModelShape& shape, const HfTokens& tokens) {
  ordered_json config = shape.architecture == Architecture::kGpt2 ? gpt2(shape) : llama(shape);
  config["initializer_range"] = 0.02;
  config["tie_word_embeddings"] = shape.tied;
  config["bos_token_id"] = token(tokens.bos);
  config["eos_token_id"] = token(tokens.eos);
  config["dtype"] = "float32";
  config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

std::string hf_generation_config_text(const HfTokens& tokens) {
  ordered_json config;
  config["_from_model_config"] = true;
  config["bos_token_id"] = token(tokens.bos);
  config["eos_token_id"] = token(tokens.eos);
  return config.dump(2) + "\n";
}

}  // namespace isthmus
