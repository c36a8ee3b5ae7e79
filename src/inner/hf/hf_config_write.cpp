// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_families.h"

namespace isthmus {
namespace {

using nlohmann::ordered_json;

/// Keys of the folder that a model began from; null special tokens for a model of ours.
ordered_json settings_of(const std::string& settings) {
  if (!settings.empty()) return read_json(settings);
  return {{"initializer_range", 0.02}, {"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
}

/// Adds the keys that are not there.
void add_missing(ordered_json& config, const ordered_json& others) {
  for (const auto& item : others.items()) {
    if (!config.contains(item.key())) config[item.key()] = item.value();
  }
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
  // null means 4 n_embd
  config["n_inner"] =
      shape.d_ff == 4 * shape.d_model ? ordered_json(nullptr) : ordered_json(shape.d_ff);
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = shape.norm_eps;
  return config;
}

/// The keys that all models of the llama kind have.
ordered_json sizes(const ModelShape& shape, std::string_view model_class, std::string_view type) {
  ordered_json config;
  config["architectures"] = {model_class};
  config["model_type"] = type;
  config["vocab_size"] = shape.vocab;
  config["max_position_embeddings"] = shape.positions;
  config["hidden_size"] = shape.d_model;
  config["intermediate_size"] = shape.d_ff;
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  return config;
}

ordered_json llama(const ModelShape& shape) {
  ordered_json config = shape.qk_norm ? sizes(shape, "Qwen3ForCausalLM", "qwen3")
                                      : sizes(shape, "LlamaForCausalLM", "llama");
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = shape.norm_eps;
  config["rope_theta"] = shape.rope_theta;
  config["rope_parameters"] = {{"rope_theta", shape.rope_theta}, {"rope_type", "default"}};
  config["attention_bias"] = false;
  if (!shape.qk_norm) config["mlp_bias"] = false;
  return config;
}

/// A family's model comes from a folder, whose other keys are among its settings.
ordered_json of_family(const ModelShape& shape) {
  return sizes(shape, hf_model_class(shape.family.name), shape.family.name);
}

}  // namespace

std::string hf_config_text(const ModelShape& shape, const std::string& settings) {
  const bool is_gpt2 = shape.architecture == Architecture::kGpt2;
  ordered_json config = !shape.family.name.empty() ? of_family(shape)
                        : is_gpt2                  ? gpt2(shape)
                                                   : llama(shape);
  config["tie_word_embeddings"] = shape.tied;
  add_missing(config, settings_of(settings));
  if (settings.empty()) {  // our models train without dropout
    add_missing(config,
                is_gpt2
                    ? ordered_json{{"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}, {"resid_pdrop", 0.0}}
                    : ordered_json{{"attention_dropout", 0.0}});
  }
  config["dtype"] = "float32";
  config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

std::string hf_generation_config_text(const std::string& settings) {
  const ordered_json all = settings_of(settings);
  ordered_json config;
  config["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (all.contains(key)) config[key] = all[key];
  }
  return config.dump(2) + "\n";
}

}  // namespace isthmus
