// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model_shape.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
// Bounds that keep every product of sizes far from the end of int64.
constexpr std::int64_t kMostLayers = 10'000;
constexpr std::int64_t kWidest = std::int64_t{1} << 20;
constexpr std::int64_t kWidestFeedForward = std::int64_t{1} << 24;
constexpr std::int64_t kLongest = std::int64_t{1} << 24;
constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 31;  // ids are int32
constexpr std::int64_t kFeedForwardStep = 32;

void check_range(std::string_view key, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw ConfigError(fmt::format("{} = {}: must be between 1 and {}", key, value, most));
  }
}

Architecture parse_architecture(const std::string& name) {
  if (name == "gpt2") return Architecture::kGpt2;
  if (name == "llama") return Architecture::kLlama;
  throw ConfigError(fmt::format("model.arch = \"{}\": must be gpt2 or llama", name));
}

std::int64_t default_feed_forward(Architecture architecture, std::int64_t d_model) {
  if (architecture == Architecture::kGpt2) return 4 * d_model;
  const std::int64_t wanted = (8 * d_model + 2) / 3;
  return (wanted + kFeedForwardStep - 1) / kFeedForwardStep * kFeedForwardStep;
}

void check_heads(const ModelShape& s, std::int64_t given_head_dim, const SizeNames& names) {
  if (given_head_dim == 0 && s.d_model % s.heads != 0) {
    throw ConfigError(fmt::format("{} = {}: must divide {} = {}{}", names.heads, s.heads,
                                  names.d_model, s.d_model,
                                  s.architecture == Architecture::kLlama
                                      ? fmt::format(", or {} must be given", names.head_dim)
                                      : ""));
  }
  if (s.heads % s.kv_heads != 0) {
    throw ConfigError(fmt::format("{} = {}: must divide {} = {}", names.kv_heads, s.kv_heads,
                                  names.heads, s.heads));
  }
  if (s.architecture == Architecture::kGpt2) {
    if (s.kv_heads != s.heads) {
      throw ConfigError(
          fmt::format("{} = {}: gpt2 has as many key heads as query heads ({}); use llama",
                      names.kv_heads, s.kv_heads, s.heads));
    }
    if (s.query_width() != s.d_model) {
      throw ConfigError(
          fmt::format("{} = {}: gpt2 needs n_heads * head_dim = d_model = {}; leave it out",
                      names.head_dim, s.head_dim, s.d_model));
    }
  } else if (s.family.rotary_dim == 0 && s.head_dim % 2 != 0) {
    throw ConfigError(fmt::format("{} = {}: must be even (rotary embedding turns pairs)",
                                  names.head_dim, s.head_dim));
  }
}

LoraShape lora_shape(const LoraConfig& config, const ModelShape& shape) {
  if (config.rank == 0) return {};
  if (shape.architecture == Architecture::kGpt2) {
    throw ConfigError(
        fmt::format("lora.r = {}: adapters are for models of arch llama; leave [lora] "
                    "out to train all weights",
                    config.rank));
  }
  LoraShape lora{.rank = config.rank, .alpha = config.alpha};
  const std::vector<LoraProduct> products = lora_products(shape);
  for (const std::string& name : config.targets) {
    bool known = false;
    for (const LoraProduct& product : products) {
      if (name != "all-linear" && name != product.module()) continue;
      lora.targets[static_cast<std::size_t>(product.target)] = known = true;
    }
    if (known) continue;
    std::string names;
    for (const LoraProduct& product : products) names += fmt::format("{}, ", product.module());
    throw ConfigError(
        fmt::format("lora.targets: \"{}\" is no product of {}: its layers have {}or \"all-linear\"",
                    name, shape.family.name.empty() ? "this model" : shape.family.name, names));
  }
  return lora;
}

/// The conditions that a folder's reader has checked; a family with other values would index beyond
/// its layers.
void check_family(const ModelShape& s) {
  const ModelFamily& family = s.family;
  ISTHMUS_CHECK(
      family.layers.empty() || static_cast<std::int64_t>(family.layers.size()) == s.layers,
      family.layers.size(), s.layers);
  ISTHMUS_CHECK(family.rotary_dim >= 0 && family.rotary_dim <= s.head_dim, family.rotary_dim);
  ISTHMUS_CHECK(family.rotary_dim % 2 == 0, family.rotary_dim);
  ISTHMUS_CHECK(family.window >= 0 && family.embedding_scale > 0, family.window);
  ISTHMUS_CHECK(!family.interleaved_heads || (s.kv_heads == s.heads && !s.qk_norm), s.kv_heads);
  ISTHMUS_CHECK(!family.parallel_residual || !s.norms_after(), s.layers);
  ISTHMUS_CHECK(s.architecture == Architecture::kLlama || family == ModelFamily{}, family.name);
}
}  // namespace

std::vector<LoraProduct> lora_products(const ModelShape& s) {
  using enum LoraTarget;
  if (s.family.interleaved_heads) {  // GPT-NeoX
    return {{kQuery, "attention.query_key_value", s.d_model, s.qkv_width()},
            {kOut, "attention.dense", s.query_width(), s.d_model},
            {kGate, "mlp.dense_h_to_4h", s.d_model, s.up_width()},
            {kDown, "mlp.dense_4h_to_h", s.d_ff, s.d_model}};
  }
  std::vector<LoraProduct> products;
  if (s.family.fused_products) {
    products.push_back({kQuery, "self_attn.qkv_proj", s.d_model, s.qkv_width()});
  } else {
    products.push_back({kQuery, "self_attn.q_proj", s.d_model, s.query_width()});
    products.push_back({kKey, "self_attn.k_proj", s.d_model, s.key_width()});
    products.push_back({kValue, "self_attn.v_proj", s.d_model, s.key_width()});
  }
  products.push_back({kOut, "self_attn.o_proj", s.query_width(), s.d_model});
  if (s.family.fused_products) {
    products.push_back({kGate, "mlp.gate_up_proj", s.d_model, s.up_width()});
  } else {
    products.push_back({kGate, "mlp.gate_proj", s.d_model, s.d_ff});
    products.push_back({kUp, "mlp.up_proj", s.d_model, s.d_ff});
  }
  products.push_back({kDown, "mlp.down_proj", s.d_ff, s.d_model});
  return products;
}

ModelShape model_shape(const ModelConfig& config, std::int64_t train_context,
                       const SizeNames& names) {
  ModelShape s;
  s.architecture = parse_architecture(config.arch);
  s.family = config.family;
  check_range(names.layers, config.layers, kMostLayers);
  check_range(names.d_model, config.d_model, kWidest);
  check_range(names.heads, config.heads, kWidest);
  s.layers = config.layers;
  s.d_model = config.d_model;
  s.heads = config.heads;
  s.kv_heads = config.kv_heads == 0 ? config.heads : config.kv_heads;
  check_range(names.kv_heads, s.kv_heads, kWidest);
  s.head_dim = config.head_dim == 0 ? config.d_model / config.heads : config.head_dim;
  check_heads(s, config.head_dim, names);
  check_range(names.head_dim, s.head_dim, kWidest);
  check_range(fmt::format("{} * {}", names.heads, names.head_dim), s.query_width(), kWidest);
  s.d_ff = config.d_ff == 0 ? default_feed_forward(s.architecture, config.d_model) : config.d_ff;
  check_range(names.d_ff, s.d_ff, kWidestFeedForward);
  check_range(names.vocab, config.vocab, kLargestVocabulary);
  s.vocab = config.vocab;
  s.positions = config.context == 0 ? train_context : config.context;
  check_range(names.context, s.positions, kLongest);
  // Frequencies of "dynamic" follow the length of a pass, which may exceed the positions of the
  // model.
  if (train_context > s.positions && s.family.rope.type != RopeType::kDynamic) {
    throw ConfigError(
        fmt::format("train.context = {}: the model has only {} = {} positions; "
                    "make train.context {} or less",
                    train_context, names.context, s.positions, s.positions));
  }
  s.longest = train_context;
  s.tied = config.tied;
  s.qk_norm = config.qk_norm;
  if (s.qk_norm && s.architecture == Architecture::kGpt2) {
    throw ConfigError("model.qk_norm = true: gpt2 has no query and key norms; use llama");
  }
  s.z_loss = config.z_loss;
  s.rope_theta = config.rope_theta;
  s.norm_eps = config.norm_eps;
  s.lora = lora_shape(config.lora, s);
  check_family(s);
  return s;
}

}  // namespace isthmus
