// SPDX-License-Identifier: Apache-2.0
// What a file leaves open: presets, a model folder's sizes, the method's defaults, the sites.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/config_loader.h"
#include "core/config_values.h"

namespace isthmus::config {
namespace {

struct Preset {
  std::string_view name, arch;
  std::int64_t layers, d_model, heads, kv_heads, d_ff, vocab, context;
};
constexpr std::array<Preset, 10> kPresets = {{
    {"nano", "", 4, 64, 4, 0, 0, 256, 64},
    {"tiny", "", 4, 128, 4, 0, 0, 256, 128},
    {"small", "", 6, 256, 8, 0, 0, 256, 256},
    {"small-10m", "", 6, 384, 6, 0, 0, 256, 256},
    {"mid", "", 8, 512, 8, 0, 0, 8192, 256},
    {"gpt2-124m", "gpt2", 12, 768, 12, 0, 0, 50257, 256},
    {"llama-small", "llama", 6, 256, 8, 4, 688, 256, 256},
    {"llama-mid", "llama", 8, 512, 8, 4, 1376, 8192, 256},
    {"llama-134m", "llama", 30, 576, 9, 3, 1536, 49152, 256},
    {"llama-1.3b", "llama", 24, 2048, 16, 16, 5504, 32000, 1024},
}};

/// parallel.codecs: strong where values are averaged and mild on activations, whose errors nothing
/// averages; or strong everywhere.
struct CodecPolicy {
  std::string_view name, averaged, activations;
};
constexpr std::array<CodecPolicy, 2> kCodecPolicies = {{
    {"default", "int8", "bf16"},
    {"strong", "int4", "int4"},
}};

/// What a model folder decides; everything else of [model] belongs to the training.
constexpr std::array<std::string_view, 13> kFolderKeys = {
    "model.arch",     "model.n_layers",   "model.d_model", "model.n_heads", "model.n_kv_heads",
    "model.head_dim", "model.d_ff",       "model.vocab",   "model.context", "model.tied",
    "model.qk_norm",  "model.rope_theta", "model.norm_eps"};

const KeyRow<Config>& row_of(std::string_view name) {
  for (const auto& row : config_rows()) {
    if (row.name == name) {
      return row;
    }
  }
  throw std::logic_error(fmt::format("no row '{}'", name));
}

bool is_auto(const Value& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer != nullptr && *integer == 0;
}

}  // namespace

void Loader::complete() {
  apply_preset();
  apply_init();
  apply_method_defaults();
  apply_optimizer_defaults();
  apply_schedule_defaults();
  apply_solo_default();
  make_sites();
  apply_codec_policy();
  resolve_percentages();
}

void Loader::apply_preset() {
  for (const Preset& preset : kPresets) {
    if (preset.name != config.model.preset) {
      continue;
    }
    const auto fill = [&](std::string_view name, const Value& value) {
      if (!given(name)) {
        row_of(name).field.set(config, value);
        default_origins[std::string(name)] = fmt::format("preset {}", preset.name);
      }
    };
    if (!preset.arch.empty()) {
      fill("model.arch", std::string(preset.arch));
    }
    fill("model.n_layers", preset.layers);
    fill("model.d_model", preset.d_model);
    fill("model.n_heads", preset.heads);
    fill("model.d_ff", preset.d_ff);
    fill("model.vocab", preset.vocab);
    fill("train.context", preset.context);
    if (config.model.arch == "llama") {
      fill("model.n_kv_heads", preset.kv_heads);
    }
  }
}

void Loader::apply_init() {
  if (config.model.init.empty()) {
    return;
  }
  if (given("model.preset")) {
    refuse("E-CONFLICT", "model.preset", "'model.preset' beside 'model.init'",
           "the folder decides the sizes; remove the preset");
    return;
  }
  if (!context.read_model) {
    return;
  }
  Config folder = config;
  try {
    folder.model = context.read_model(config.locate(config.model.init));
  } catch (const Error& error) {
    refuse("E-FILE", "model.init", fmt::format("{}: {}", quoted("model.init"), error.what()));
    return;
  }
  for (const std::string_view name : kFolderKeys) {
    const KeyRow<Config>& row = row_of(name);
    const Value theirs = row.field.get(folder);
    const Value ours = row.field.get(config);
    if (given(name) && !is_auto(ours) && ours != theirs) {
      refuse("E-CONFLICT", name,
             fmt::format("{}: the model in '{}' has {}", quoted(name), config.model.init.string(),
                         toml_text(theirs, row.type)),
             "remove the key; the folder decides the sizes");
      continue;
    }
    row.field.set(config, theirs);
    default_origins[std::string(name)] = "model.init";
  }
  if (!given("train.context") && config.model.context > 0 &&
      config.model.context < config.train.context) {
    config.train.context = config.model.context;
    default_origins["train.context"] = "model.init";
  }
}

void Loader::apply_method_defaults() {
  const MethodInfo* info = method();
  if (info == nullptr) {
    return;
  }
  const auto fill = [&](std::string_view key, auto& option, auto value) {
    const std::string name = fmt::format("outer.{}", key);
    if (info->takes(key) && !given(name)) {
      option = value;
      default_origins[name] = fmt::format("default of {}", info->name);
    }
  };
  if (info->default_H > 1) {
    fill("H", config.outer.H, info->default_H);
  }
  fill("lr", config.outer.lr, info->default_lr);
  fill("momentum", config.outer.momentum, info->default_momentum);
  fill("nesterov", config.outer.nesterov, true);
  fill("alpha", config.outer.alpha, info->default_alpha);
  fill("codec", config.outer.codec, info->default_codec);
}

// Where a mesh has the dimension: a codec of another one would be refused.
void Loader::apply_codec_policy() {
  for (const CodecPolicy& policy : kCodecPolicies) {
    if (policy.name != config.rank_codec_policy) continue;
    const bool sums_are_bf16 = config.train.precision == "bf16";  // of layers, on their way
    const auto fill = [&](std::string_view name, std::string_view codec) {
      const KeyRow<Config>& row = row_of(name);
      if (given(name) || !row.used(config)) return;
      row.field.set(config, std::string(codec));
      default_origins[std::string(name)] = "parallel.codecs";
    };
    fill("parallel.codec_data", policy.averaged);
    fill("parallel.codec_state", policy.averaged);
    fill("parallel.codec_pipeline", policy.activations);
    if (!sums_are_bf16) fill("parallel.codec_tensor", policy.activations);
  }
}

void Loader::apply_optimizer_defaults() {
  if (config.inner.optimizer != "muon") {
    return;
  }
  if (!given("inner.momentum")) {
    config.inner.momentum = 0.95;
    default_origins["inner.momentum"] = "default of muon";
  }
  if (!given("inner.nesterov")) {
    config.inner.nesterov = config.inner.momentum > 0;
    default_origins["inner.nesterov"] = "default of muon";
  }
}

void Loader::apply_schedule_defaults() {
  const std::string& schedule = config.inner.schedule;
  if ((schedule == "wsd" || schedule == "infinite") && !given("inner.decay")) {
    // A tenth of the run is enough for the loss to come down (Hu et al. arXiv:2404.06395 §4.3).
    config.inner.decay.fraction = 0.1;
    default_origins["inner.decay"] = fmt::format("default of {}", schedule);
  }
}

void Loader::make_sites() {
  if (!config.sites.empty()) {
    if (given("run.workers")) {
      refuse(
          "E-CONFLICT", "run.workers",
          fmt::format("{} together with {} [[site]]", quoted("run.workers"), config.sites.size()),
          "each [[site]] is one worker; remove run.workers");
    }
    for (std::size_t i = 0; i < config.sites.size(); ++i) {
      SiteConfig& site = config.sites[i];
      site.tp = site_keys[i].contains("site.tp") ? site.tp : config.tp;
      site.pp = site_keys[i].contains("site.pp") ? site.pp : config.pp;
      site.dp = site_keys[i].contains("site.dp") ? site.dp : config.dp;
    }
    config.run.workers = config.workers();
    return;
  }
  for (int worker = 0; worker < config.run.workers; ++worker) {
    SiteConfig site;
    site.name = fmt::format("w{}", worker);
    site.tp = config.tp;
    site.pp = config.pp;
    site.dp = config.dp;
    config.sites.push_back(std::move(site));
  }
}

}  // namespace isthmus::config

namespace isthmus {

std::int64_t total_steps(const Config& config) {
  if (config.train.steps) {
    return *config.train.steps;
  }
  const bool known = config.train.tokens && config.train.global_batch_tokens > 0;
  return known ? *config.train.tokens / config.train.global_batch_tokens : 0;
}

std::int64_t StepCount::resolve(std::int64_t total_steps) const {
  return fraction ? std::llround(*fraction * static_cast<double>(total_steps)) : steps;
}

}  // namespace isthmus
