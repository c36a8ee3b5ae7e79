// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_config_reader.h"
#include "inner/hf/hf_families.h"
#include "inner/model/model_shape.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;

// Keys that hf_config_write.cpp writes from the shape of a plain model, or that hf_families.cpp has
// checked against the abilities of our models.
constexpr std::array kOfTheShape = {
    "architectures", "model_type", "vocab_size", "tie_word_embeddings", "dtype", "torch_dtype",
    "quantization_config",
    // GPT-2
    "n_positions", "n_ctx", "n_embd", "n_layer", "n_head", "n_inner", "activation_function",
    "layer_norm_epsilon",
    // Llama and Qwen3
    "max_position_embeddings", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
    "rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor", "attention_bias",
    "mlp_bias"};
// The keys that it writes for a family's model, whose other keys stay as they are.
constexpr std::array kOfAFamily = {
    "architectures", "model_type",        "vocab_size",          "max_position_embeddings",
    "hidden_size",   "intermediate_size", "num_hidden_layers",   "num_attention_heads",
    "dtype",         "torch_dtype",       "tie_word_embeddings", "quantization_config"};
// Keys that name files of code, which are not carried.
constexpr std::array kOfCode = {"auto_map", "custom_pipelines"};

void take_settings(const json& document, HfConfig& config) {
  json settings = document;
  if (config.model.family.name.empty()) {
    for (const char* key : kOfTheShape) settings.erase(key);
  } else {
    for (const char* key : kOfAFamily) settings.erase(key);
    add_both_rope_spellings(config.model, settings);
  }
  for (const char* key : kOfCode) {
    if (settings.erase(key) > 0) config.left_out.emplace_back(key);
  }
  config.settings = settings.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The keys that the sizes were read from.
SizeNames names_of_sizes(const HfConfigReader& reader, const ModelConfig& model) {
  if (model.arch == "gpt2") {
    return {.layers = "n_layer",
            .d_model = "n_embd",
            .heads = "n_head",
            .kv_heads = "n_head",
            .head_dim = "n_embd / n_head",
            .d_ff = "n_inner",
            .vocab = "vocab_size",
            .context = "n_positions"};
  }
  const bool divided =
      reader.find("head_dim") == nullptr && model.head_dim == model.d_model / model.heads;
  return {.layers = "num_hidden_layers",
          .d_model = "hidden_size",
          .heads = "num_attention_heads",
          .kv_heads = "num_key_value_heads",
          .head_dim = divided ? "hidden_size / num_attention_heads" : "head_dim",
          .d_ff = "intermediate_size",
          .vocab = "vocab_size",
          .context = "max_position_embeddings"};
}

/// Refuses sizes that no model here has, by the names that they have in the file.
void check_sizes(const HfConfigReader& reader, const ModelConfig& model) {
  try {
    static_cast<void>(model_shape(model, model.context, names_of_sizes(reader, model)));
  } catch (const ConfigError& error) {
    throw reader.defect(error.what());
  }
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& label) {
  const json document = parse_json(text, label);
  if (!document.is_object()) {
    throw ConfigError(label + ": is not a JSON object; copy it again from the model's folder");
  }
  HfConfigReader reader(document, label);
  HfConfig config;
  read_family(reader, config.model);
  if (const json* quantised = reader.find("quantization_config")) {
    reader.refuse("quantization_config", *quantised, "is not supported; use unquantised weights");
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) reader.check_tokens(key);
  reader.finish();
  check_sizes(reader, config.model);
  take_settings(document, config);
  return config;
}

HfConfig read_hf_config(const Storage& storage, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_hf_config(read_text(storage, path), path.string());
}

}  // namespace isthmus
