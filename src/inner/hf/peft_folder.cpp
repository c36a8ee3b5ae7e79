// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/peft_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/followed_links.h"
#include "core/base/json_input.h"
#include "core/state/safetensors.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr const char* kBaseDigest = "isthmus.base_digest";  // in the metadata of the weights

using nlohmann::json;

/// Names of the products of all families, as PEFT's target_modules has them.
constexpr std::array<std::string_view, 13> kModules = {
    "q_proj",  "k_proj",        "v_proj",       "o_proj",       "gate_proj",
    "up_proj", "down_proj",     "qkv_proj",     "gate_up_proj", "query_key_value",
    "dense",   "dense_h_to_4h", "dense_4h_to_h"};

class AdapterConfig {
 public:
  AdapterConfig(json document, std::string label)
      : document_(std::move(document)), label_(std::move(label)) {
    if (!document_.is_object()) bad("must be a JSON object");
  }

  /// Settings that our adapters have at one value alone; null counts as absent.
  void must_be(const char* key, const json& value, const char* meaning) const {
    const json* const given = find(key);
    if (given == nullptr || *given == value) return;
    throw ConfigError(
        fmt::format("{}: {} = {}: adapters here have {}; train or export the adapter without it",
                    label_, key, given->dump(), meaning));
  }
  void must_be_empty(const char* key, const char* meaning) const {
    const json* const given = find(key);
    if (given == nullptr || given->empty()) return;
    throw ConfigError(
        fmt::format("{}: {} = {}: adapters here have {}; train the adapter without it", label_, key,
                    given->dump(), meaning));
  }
  /// Starts that subtract the adapters from the base: beside the base itself they are others.
  void must_not_change_base() const {
    constexpr const char* kKey = "init_lora_weights";
    const json* const given = find(kKey);
    if (given == nullptr || !given->is_string()) return;
    const auto& spelt = given->get_ref<const std::string&>();
    std::string start = spelt;  // PEFT reads it in any case
    std::ranges::transform(start, start.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    for (const std::string_view changes : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
      if (!start.starts_with(changes)) continue;
      throw ConfigError(fmt::format(
          "{}: {} = \"{}\": such a start changes the base weights, and adapters here stand beside "
          "unchanged ones; {}name the changed base in model.init and set {} to true",
          label_, kKey, spelt,
          changes == "loftq" ? ""
                             : "convert it in PEFT, save_pretrained(DIR, "
                               "path_initial_model_for_weight_conversion=...), or ",
          kKey));
    }
  }
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = document_.find(key);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] const std::string& label() const { return label_; }
  [[noreturn]] void bad(const std::string& why) const {
    throw SystemError(fmt::format("{}: {}", label_, why));
  }

 private:
  json document_;
  std::string label_;
};

/// Names of the modules with an adapter, as the weights say: "model.layers.0.self_attn.q_proj".
json modules_with_weights(const Storage& storage, const std::filesystem::path& path) {
  constexpr std::string_view kEnd = ".lora_A.weight";
  json modules = json::array();
  const Safetensors weights = Safetensors::open(storage, path);
  for (const SafetensorsEntry& entry : weights.entries()) {
    const std::string_view name = entry.name;
    if (name.ends_with(kEnd)) modules.push_back(name.substr(0, name.size() - kEnd.size()));
  }
  return modules;
}

/// PEFT's list has names or ends of names; its text is "all-linear" or a regular expression, and
/// what that matched is what the weights have. A layer without one of the targets is told apart
/// when the weights are read.
std::vector<std::string> targets_of(const AdapterConfig& config, const Storage& storage,
                                    const std::filesystem::path& weights) {
  const json* const stated = config.find("target_modules");
  if (stated == nullptr) config.bad("target_modules is missing");
  if (*stated == "all-linear") return {"all-linear"};
  if (!stated->is_array() && !stated->is_string()) {
    throw ConfigError(fmt::format(
        "{}: target_modules = {}: must be a list of names here, a regular expression, or "
        "\"all-linear\"",
        config.label(), stated->dump()));
  }
  const json given = stated->is_string() ? modules_with_weights(storage, weights) : *stated;
  const auto end_of = [](const json& module) {
    const std::string name = module.is_string() ? module.get<std::string>() : "";
    return name.substr(name.rfind('.') + 1);
  };
  std::vector<std::string> targets;
  for (const std::string_view module : kModules) {
    if (std::ranges::find(given, module, end_of) != given.end()) targets.emplace_back(module);
  }
  for (const json& each : given) {
    if (std::ranges::find(targets, end_of(each)) == targets.end()) {
      throw ConfigError(fmt::format("{}: target_modules names {}: adapters here are for {}",
                                    config.label(), each.dump(), fmt::join(kModules, ", ")));
    }
  }
  if (targets.empty()) config.bad("target_modules is empty");
  return targets;
}

/// What in target_modules says a layer by its number; empty where nothing does.
std::string first_with_layers(const AdapterConfig& config) {
  const json* const stated = config.find("target_modules");
  if (stated == nullptr) return "";
  for (const json& each : stated->is_array() ? *stated : json::array({*stated})) {
    std::string text = each.dump();
    if (text.find_first_of("0123456789") != std::string::npos) return text;
  }
  return "";
}

}  // namespace

std::string adapter_config_text(const ModelShape& shape, const std::string& base) {
  const LoraShape& lora = shape.lora;
  json targets = json::array();
  for (const LoraProduct& product : lora_products(shape)) {
    if (!lora.targets[static_cast<std::size_t>(product.target)]) continue;
    targets.push_back(std::string(product.module()));
  }
  const json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", lora.rank},
                       {"lora_alpha", lora.alpha},
                       {"lora_dropout", 0.0},
                       {"target_modules", targets},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"modules_to_save", nullptr},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"inference_mode", true}};
  return config.dump(2) + "\n";
}

PeftAdapter read_adapter_config(const Storage& storage, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kAdapterConfig;
  const AdapterConfig config(parse_json(read_text(storage, path), path.string()), path.string());
  config.must_be("peft_type", "LORA", "low rank (LORA) alone");
  config.must_be("bias", "none", "no biases of their own");
  config.must_be("fan_in_fan_out", false, "weights stored (out, in)");
  config.must_be("use_rslora", false, "the scale lora_alpha / r");
  config.must_be("use_dora", false, "no magnitudes beside the directions");
  config.must_be("lora_bias", false, "no biases of their own");
  config.must_be("use_qalora", false, "whole inputs");
  config.must_be_empty("alora_invocation_tokens", "adapters at every token");
  config.must_be_empty("layer_replication", "the layers of their base");
  config.must_not_change_base();
  config.must_be_empty("modules_to_save", "no modules that are trained whole");
  config.must_be_empty("rank_pattern", "one rank for all products");
  config.must_be_empty("alpha_pattern", "one alpha for all products");
  config.must_be_empty("layers_to_transform", "adapters in every layer");
  config.must_be_empty("trainable_token_indices", "frozen embeddings");
  PeftAdapter adapter;
  const json* const rank = config.find("r");
  const json* const alpha = config.find("lora_alpha");
  if (rank == nullptr || !rank->is_number_unsigned() || *rank < 1) {
    config.bad("r must be a whole number from 1");
  }
  if (alpha == nullptr || !alpha->is_number() || *alpha <= 0) {
    config.bad("lora_alpha must be a positive number");
  }
  adapter.lora.rank = whole_number<std::int64_t>(*rank);
  adapter.lora.alpha = alpha->get<double>();
  adapter.lora.targets = targets_of(config, storage, folder / kAdapterWeights);
  const json* const base = config.find("base_model_name_or_path");
  if (base != nullptr && base->is_string()) adapter.base = base->get<std::string>();
  return adapter;
}

void check_adapter(const Storage& storage, const std::filesystem::path& folder,
                   std::span<const Parameter> parameters) {
  const std::filesystem::path weights = folder / kAdapterWeights;
  try {
    (void)check_hf_weights(storage, weights, parameters);
  } catch (const SystemError& error) {
    const std::filesystem::path path = folder / kAdapterConfig;
    const AdapterConfig config(parse_json(read_text(storage, path), path.string()), path.string());
    const std::string layers = first_with_layers(config);
    const bool lacks = modules_with_weights(storage, weights).size() < parameters.size() / 2;
    if (layers.empty() || !lacks) throw;
    throw SystemError(
        fmt::format("{}; {}: target_modules names layers ({}), and adapters here are in every "
                    "layer: train the adapter in all of them",
                    error.what(), path.string(), layers));
  }
}

void load_adapter(const Storage& storage, const std::filesystem::path& folder,
                  std::span<const Parameter> parameters) {
  load_hf_weights(storage, folder / kAdapterWeights, parameters);
}

void check_no_adapter(const Storage& storage, const std::filesystem::path& folder) {
  if (storage.kind(folder / kAdapterConfig) == FileKind::kAbsent) return;
  throw SystemError(fmt::format(
      "'{}' holds {}, an adapter that transformers would load with the model written here: name "
      "another folder, or remove the adapter",
      folder.string(), kAdapterConfig));
}

void check_adapters_alone(const Storage& storage, const std::filesystem::path& folder) {
  if (followed_kind(storage, folder) == FileKind::kAbsent) return;
  for (const std::string& name : storage.list(folder)) {
    if (name == kAdapterConfig || name == kAdapterWeights) continue;
    throw SystemError(
        fmt::format("'{}' holds {}, which is no part of an adapter: name another folder",
                    folder.string(), name));
  }
}

std::string adapter_base_digest(const Storage& storage, const std::filesystem::path& folder) {
  const Safetensors weights = Safetensors::open(storage, folder / kAdapterWeights);
  const auto found = weights.metadata().find(kBaseDigest);
  return found == weights.metadata().end() ? "" : found->second;
}

void write_adapter_folder(Storage& storage, const std::filesystem::path& folder,
                          const ModelShape& shape, const std::string& base,
                          const std::string& base_digest, std::span<const HfTensor> tensors) {
  storage.create_directories(folder);
  check_adapters_alone(storage, folder);
  write_atomically(storage, folder / kAdapterConfig, adapter_config_text(shape, base));
  std::vector<TensorToWrite> written;
  for (const HfTensor& tensor : tensors) {
    written.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  }
  SafetensorsMetadata metadata = {{"format", "pt"}};
  if (!base_digest.empty()) metadata.emplace(kBaseDigest, base_digest);
  write_safetensors(storage, folder / kAdapterWeights, std::move(written), metadata);
}

}  // namespace isthmus
