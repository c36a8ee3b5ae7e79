// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/base/json_input.h"
#include "inner/hf/hf_config.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSize = std::numeric_limits<std::int32_t>::max();

// Reads keys and gathers what is wrong with them, so that one error shows all.
class Reader {
 public:
  Reader(const json& document, std::string label) : document_(document), label_(std::move(label)) {}

  /// Null counts as absent, as the libraries write it.
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = document_.find(key);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }

  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = {}) {
    const json* value = find(key);
    if (value == nullptr) {
      if (!fallback) defects_.push_back(fmt::format("{} is missing", key));
      return fallback.value_or(1);
    }
    if (!value->is_number_unsigned() || *value < 1 || *value > kLargestSize) {
      refuse(key, *value, "must be a whole number from 1 to 2147483647");
      return 1;
    }
    return value->get<std::int64_t>();
  }

  double positive(const json* value, const std::string& key, double fallback) {
    if (value == nullptr || value->is_null()) return fallback;
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
      refuse(key, *value, "must be a positive number");
      return fallback;
    }
    return value->get<double>();
  }

  bool flag(const char* key, bool fallback) {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      refuse(key, *value, "must be true or false");
      return fallback;
    }
    return value->get<bool>();
  }

  /// The key, where given, must have one of the values our models implement.
  void supported(const char* key, const std::vector<json>& values) {
    const json* value = find(key);
    if (value == nullptr) return;
    std::string choices;
    for (const json& choice : values) {
      if (*value == choice) return;
      choices += (choices.empty() ? "" : " or ") + choice.dump();
    }
    refuse(key, *value, fmt::format("is not supported; only {} is", choices));
  }

  /// The key, where given, must be a token id, a list of them or null.
  void check_tokens(const char* key) {
    const json* value = find(key);
    if (value == nullptr) return;
    const bool ids = value->is_array() ? std::ranges::all_of(*value, is_id) : is_id(*value);
    if (!ids) refuse(key, *value, "must be a token id, a list of them or null");
  }

  void refuse(const std::string& key, const json& value, const std::string& rule) {
    std::string shown = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    defects_.push_back(fmt::format("{} = {} {}", key, shown, rule));
  }

  void finish() const {
    if (defects_.empty()) return;
    throw ConfigError(fmt::format("{}: {}", label_, fmt::join(defects_, "; ")));
  }

 private:
  static bool is_id(const json& value) { return value.is_number_integer(); }

  const json& document_;
  std::string label_;
  std::vector<std::string> defects_;
};

void read_gpt2(Reader& reader, ModelConfig& model) {
  model.arch = "gpt2";
  model.layers = reader.size("n_layer");
  model.d_model = reader.size("n_embd");
  model.heads = reader.size("n_head");
  model.kv_heads = model.heads;
  model.d_ff = reader.size("n_inner", 4 * model.d_model);
  model.vocab = reader.size("vocab_size");
  model.context = reader.size("n_positions");
  model.tied = reader.flag("tie_word_embeddings", true);
  model.norm_eps = reader.positive(reader.find("layer_norm_epsilon"), "layer_norm_epsilon", 1e-5);
  reader.supported("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  reader.supported("scale_attn_weights", {true});
  reader.supported("scale_attn_by_inverse_layer_idx", {false});
  reader.supported("add_cross_attention", {false});
}

// transformers 4 writes rope_theta beside rope_scaling, transformers 5 one rope_parameters.
void read_rope(Reader& reader, ModelConfig& model) {
  model.rope_theta = reader.positive(reader.find("rope_theta"), "rope_theta", 10000);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* rope = reader.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) {
      reader.refuse(key, *rope, "must be an object or null");
      continue;
    }
    for (const auto& item : rope->items()) {
      const std::string name = fmt::format("{}.{}", key, item.key());
      const json& value = item.value();
      if (item.key() == "rope_theta") {
        model.rope_theta = reader.positive(&value, name, model.rope_theta);
      } else if (item.key() == "rope_type" || item.key() == "type") {
        if (value != "default") reader.refuse(name, value, "is not supported; only \"default\" is");
      } else if (item.key() == "partial_rotary_factor") {
        if (value != 1.0) reader.refuse(name, value, "is not supported; only 1 is");
      } else if (!value.is_null()) {
        reader.refuse(name, value, "is not supported");
      }
    }
  }
  reader.supported("partial_rotary_factor", {1.0});
}

void read_llama(Reader& reader, ModelConfig& model, bool qwen3) {
  model.arch = "llama";
  model.qk_norm = qwen3;
  model.layers = reader.size("num_hidden_layers");
  model.d_model = reader.size("hidden_size");
  model.heads = reader.size("num_attention_heads");
  model.kv_heads = reader.size("num_key_value_heads", model.heads);
  // Where head_dim is absent, Qwen3's library takes 128 and Llama's divides.
  model.head_dim =
      reader.size("head_dim", qwen3 ? 128 : std::max<std::int64_t>(model.d_model / model.heads, 1));
  model.d_ff = reader.size("intermediate_size");
  model.vocab = reader.size("vocab_size");
  model.context = reader.size("max_position_embeddings");
  model.tied = reader.flag("tie_word_embeddings", false);
  model.norm_eps = reader.positive(reader.find("rms_norm_eps"), "rms_norm_eps", 1e-6);
  read_rope(reader, model);
  reader.supported("hidden_act", {"silu", "swish"});
  reader.supported("attention_bias", {false});
  reader.supported("mlp_bias", {false});
  reader.supported("use_sliding_window", {false});
  const json* kinds = reader.find("layer_types");
  for (const json& kind : kinds != nullptr && kinds->is_array() ? *kinds : json::array()) {
    if (kind == "full_attention") continue;
    reader.refuse("layer_types", *kinds, "is not supported; only \"full_attention\" is");
    break;
  }
}

// Keys that hf_config_write.cpp writes from a model's shape, or that this file has checked to say
// what our models do.
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
// Keys that name files of code, which are not carried.
constexpr std::array kOfCode = {"auto_map", "custom_pipelines"};

void take_settings(const json& document, HfConfig& config) {
  json settings = document;
  for (const char* key : kOfTheShape) settings.erase(key);
  for (const char* key : kOfCode) {
    if (settings.erase(key) > 0) config.left_out.emplace_back(key);
  }
  config.settings = settings.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& label) {
  const json document = parse_json(text, label);
  if (!document.is_object()) throw ConfigError(label + ": is not a JSON object");
  Reader reader(document, label);
  HfConfig config;
  const json* type = reader.find("model_type");
  if (type == nullptr) {
    throw ConfigError(label +
                      ": model_type is missing; \"gpt2\", \"llama\" and \"qwen3\" are known");
  }
  if (*type == "gpt2") {
    read_gpt2(reader, config.model);
  } else if (*type == "llama" || *type == "qwen3") {
    read_llama(reader, config.model, *type == "qwen3");
  } else {
    reader.refuse("model_type", *type, "is not supported; \"gpt2\", \"llama\" and \"qwen3\" are");
  }
  if (const json* quantised = reader.find("quantization_config")) {
    reader.refuse("quantization_config", *quantised, "is not supported; use unquantised weights");
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) reader.check_tokens(key);
  reader.finish();
  take_settings(document, config);
  return config;
}

HfConfig read_hf_config(const Storage& storage, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_hf_config(read_text(storage, path), path.string());
}

}  // namespace isthmus
