// SPDX-License-Identifier: Apache-2.0
// Values for keys that a file leaves open: presets, a model folder's sizes, the method's defaults,
// the sites.
#include "config/load/config_load_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "config/load/config_load_files.h"
#include "config/schema/config_schema_values.h"
#include "isthmus/errors.h"

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

/// The keys that a model folder decides; all other keys of [model] belong to the training.
constexpr std::array<std::string_view, 13> kFolderKeys = {
    "model.arch",     "model.n_layers",   "model.d_model", "model.n_heads", "model.n_kv_heads",
    "model.head_dim", "model.d_ff",       "model.vocab",   "model.context", "model.tied",
    "model.qk_norm",  "model.rope_theta", "model.norm_eps"};

const KeyRow<Config>& row_of(std::string_view name) {
  const auto* row = find_row(config_rows(), name);
  if (row == nullptr) throw std::logic_error(fmt::format("no row '{}'", name));
  return *row;
}

bool is_auto(const Value& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer != nullptr && *integer == 0;
}

void apply_preset(Draft& draft) {
  Config& config = draft.config;
  for (const Preset& preset : kPresets) {
    if (preset.name != config.model.preset) {
      continue;
    }
    const auto fill = [&](std::string_view name, const Value& value) {
      if (!draft.given(name)) {
        row_of(name).field.set(config, value);
        draft.default_origins[std::string(name)] = fmt::format("preset {}", preset.name);
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

void apply_init(Draft& draft) {
  Config& config = draft.config;
  if (config.model.init.empty()) {
    return;
  }
  if (draft.given("model.preset")) {
    draft.refuse("E-CONFLICT", "model.preset", "'model.preset' beside 'model.init'",
                 "the folder decides the sizes; remove the preset");
    return;
  }
  if (!draft.schema.read_model) {
    return;
  }
  Config folder = config;
  try {
    if (draft.schema.find_model) {
      const std::string init = config.model.init.string();
      config.model.init = draft.schema.find_model(init, config.locate(config.model.init));
    }
    folder.model = draft.schema.read_model(config.locate(config.model.init));
  } catch (const Error& error) {
    draft.refuse("E-FILE", "model.init",
                 fmt::format("{}: {}", draft.quoted("model.init"), error.what()));
    return;
  }
  config.model.family = folder.model.family;
  for (const std::string_view name : kFolderKeys) {
    const KeyRow<Config>& row = row_of(name);
    const Value theirs = row.field.get(folder);
    const Value ours = row.field.get(config);
    if (draft.given(name) && !is_auto(ours) && ours != theirs) {
      draft.refuse("E-CONFLICT", name,
                   fmt::format("{}: the model in '{}' has {}", draft.quoted(name),
                               config.model.init.string(), toml_text(theirs, row.type)),
                   "remove the key; the folder decides the sizes");
      continue;
    }
    row.field.set(config, theirs);
    draft.default_origins[std::string(name)] = "model.init";
  }
  if (!draft.given("train.context") && config.model.context > 0 &&
      config.model.context < config.train.context) {
    config.train.context = config.model.context;
    draft.default_origins["train.context"] = "model.init";
  }
}

void apply_method_defaults(Draft& draft) {
  Config& config = draft.config;
  const MethodInfo* info = draft.method();
  if (info == nullptr) {
    return;
  }
  const auto fill = [&](std::string_view key, auto& option, auto value) {
    const std::string name = fmt::format("outer.{}", key);
    if (info->takes(key) && !draft.given(name)) {
      option = value;
      draft.default_origins[name] = fmt::format("default of {}", info->name);
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

/// The settings of the inner optimizer that the method uses inside. A user's trainer has a separate
/// optimizer.
void apply_inside(Draft& draft) {
  Config& config = draft.config;
  const MethodInfo* info = draft.method();
  if (info == nullptr || info->inside.optimizer.empty() || config.train.trainer == "external")
    return;
  const MethodInfo::Inside& inside = info->inside;
  if (draft.given("inner.optimizer") && config.inner.optimizer != inside.optimizer) {
    draft.refuse("E-CONFLICT", "inner.optimizer",
                 fmt::format("{}: method '{}' has {} inside", draft.quoted("inner.optimizer"),
                             info->name, inside.optimizer),
                 "remove the key, or choose outer.method = \"diloco\", which takes any");
    return;
  }
  const auto fill = [&](std::string_view name, auto& option, const auto& value) {
    if (draft.given(name)) return;
    option = value;
    draft.default_origins[std::string(name)] = fmt::format("default of {}", info->name);
  };
  fill("inner.optimizer", config.inner.optimizer, inside.optimizer);
  fill("inner.lr", config.inner.lr, inside.lr);
  fill("inner.weight_decay", config.inner.weight_decay, inside.weight_decay);
  fill("inner.adjust_lr", config.inner.adjust_lr, inside.adjust_lr);
  fill("inner.momentum", config.inner.momentum, inside.momentum);
  fill("inner.nesterov", config.inner.nesterov, inside.nesterov);
}

// Where a mesh has the dimension: a codec of another one would be refused.
void apply_codec_policy(Draft& draft) {
  Config& config = draft.config;
  for (const CodecPolicy& policy : kCodecPolicies) {
    if (policy.name != config.rank_codec_policy) continue;
    const bool sums_are_bf16 = config.train.precision == "bf16";  // of layers, on their way
    const auto fill = [&](std::string_view name, std::string_view codec) {
      const KeyRow<Config>& row = row_of(name);
      if (draft.given(name) || !row.used(config)) return;
      row.field.set(config, std::string(codec));
      draft.default_origins[std::string(name)] = "parallel.codecs";
    };
    fill("parallel.codec_data", policy.averaged);
    fill("parallel.codec_state", policy.averaged);
    fill("parallel.codec_pipeline", policy.activations);
    if (!sums_are_bf16) fill("parallel.codec_tensor", policy.activations);
  }
}

void apply_optimizer_defaults(Draft& draft) {
  Config& config = draft.config;
  if (config.inner.optimizer != "muon") {
    return;
  }
  const MethodInfo* info = draft.method();
  if (info != nullptr && info->inside.optimizer == "muon") return;  // which has its own
  if (!draft.given("inner.momentum")) {
    config.inner.momentum = 0.95;
    draft.default_origins["inner.momentum"] = "default of muon";
  }
  if (!draft.given("inner.nesterov")) {
    config.inner.nesterov = config.inner.momentum > 0;
    draft.default_origins["inner.nesterov"] = "default of muon";
  }
}

void apply_schedule_defaults(Draft& draft) {
  Config& config = draft.config;
  const std::string& schedule = config.inner.schedule;
  if ((schedule == "wsd" || schedule == "infinite") && !draft.given("inner.decay")) {
    // A tenth of the run is enough for the loss to come down (Hu et al. arXiv:2404.06395 §4.3).
    config.inner.decay.fraction = 0.1;
    draft.default_origins["inner.decay"] = fmt::format("default of {}", schedule);
  }
}

// Conversations are packed whole, each by itself.
void apply_objective_defaults(Draft& draft) {
  if (draft.config.train.objective != "sft" || draft.given("data.pack")) return;
  draft.config.data.pack = "documents";
  draft.default_origins["data.pack"] = "default of train.objective = \"sft\"";
}

// Seeds give equal initial values within one program alone.
void apply_start_default(Draft& draft) {
  if (draft.config.train.trainer != "external" || draft.given("net.start")) return;
  draft.config.net.start = "first";
  draft.default_origins["net.start"] = "default of train.trainer = \"external\"";
}

void make_sites(Draft& draft) {
  Config& config = draft.config;
  if (!config.sites.empty()) {
    if (draft.given("run.workers")) {
      draft.refuse("E-CONFLICT", "run.workers",
                   fmt::format("{} together with {} [[site]]", draft.quoted("run.workers"),
                               config.sites.size()),
                   "each [[site]] is one worker; remove run.workers");
    }
    for (std::size_t i = 0; i < config.sites.size(); ++i) {
      SiteConfig& site = config.sites[i];
      site.tp = draft.sites.keys[i].contains("site.tp") ? site.tp : config.tp;
      site.pp = draft.sites.keys[i].contains("site.pp") ? site.pp : config.pp;
      site.dp = draft.sites.keys[i].contains("site.dp") ? site.dp : config.dp;
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

void apply_solo_default(Draft& draft) {
  const std::string why = solo_obstacle(draft.config, draft.method()).first;
  if (draft.given("net.max_solo_rounds") || why.empty()) return;
  draft.config.net.max_solo_rounds = 0;
  draft.default_origins["net.max_solo_rounds"] = "default: " + why;
}

void resolve_shares_of_run(Draft& draft) {
  Config& config = draft.config;
  for (const ShareOfRun& each : draft.shares_of_run) {
    const std::int64_t total = total_steps(config);
    if (each.row->name == "train.steps" || total == 0) {
      draft.diagnostics.add(
          "E-UNIT-WRONG", each.given.value,
          fmt::format("'{} = {}': a percentage of what? the length of the run is unknown",
                      each.row->name, each.given.shown),
          "write a count of steps");
      continue;
    }
    const Value value = in_steps(each.value, each.row->type, total);
    const auto* steps = std::get_if<std::int64_t>(&value);
    if (steps != nullptr && !each.row->range.contains(static_cast<double>(*steps))) {
      draft.diagnostics.add("E-RANGE", each.given.value,
                            fmt::format("'{} = {}' is {} of {} steps: must be {}", each.row->name,
                                        each.given.shown, *steps, total, each.row->range.text()));
      continue;
    }
    each.row->field.set(config, value);
  }
  const OuterOptions& outer = config.outer;
  if (outer.lr_ramp.decay > 0 || outer.momentum_ramp.decay > 0) {
    config.outer.run_steps = total_steps(config);
  }
  // The period of evaluation stays a share of the run, so that the resolved file has the given
  // value, unless the share of a short run is no whole step.
  StepCount& every = config.eval.every;
  const std::int64_t total = total_steps(config);
  if (total > 0 && every.resolve(total) == 0) {
    every = {period_of(every, total), {}};
  }
}

}  // namespace

void complete(Draft& draft) {
  apply_preset(draft);
  apply_init(draft);
  apply_method_defaults(draft);
  apply_inside(draft);
  apply_optimizer_defaults(draft);
  apply_schedule_defaults(draft);
  apply_solo_default(draft);
  apply_objective_defaults(draft);
  apply_start_default(draft);
  make_sites(draft);
  apply_codec_policy(draft);
  resolve_shares_of_run(draft);
  read_link_traces(draft);
}

std::pair<std::string, std::string> solo_obstacle(const Config& config, const MethodInfo* info) {
  constexpr std::array<std::string_view, 4> kCarry = {"localsgd", "diloco", "streaming-diloco",
                                                      "muloco"};
  if (info == nullptr) return {};
  if (std::ranges::find(kCarry, info->name) == kCarry.end()) {
    return {fmt::format("method '{}' takes none", info->name),
            fmt::format("choose outer.method = {}", fmt::join(kCarry, ", "))};
  }
  if (config.outer.carry != LostContribution::kCarry) {
    return {"outer.carry is not \"carry\"", "set outer.carry = \"carry\""};
  }
  if (!config.train.offload.empty()) {
    return {"with train.offload there is no room for it in memory", "leave train.offload out"};
  }
  return {};
}

}  // namespace isthmus::config
