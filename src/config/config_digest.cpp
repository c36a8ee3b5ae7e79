// SPDX-License-Identifier: Apache-2.0
// Digests of a configuration (of the keys that steer the trajectory, of the keys that decide the
// outcome) and the values that all sites of a run must share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "config/load/link_trace.h"
#include "config/schema/config_schema.h"
#include "config/schema/config_schema_values.h"
#include "core/base/hash.h"
#include "core/base/storage.h"

namespace isthmus {
namespace {

/// Keys that came after the first results on record: those have the digests of configurations
/// without them, so a key that keeps its default is left out.
constexpr std::array<std::string_view, 32> kCameLater = {"outer.late",
                                                         "outer.lr_warmup",
                                                         "outer.lr_decay",
                                                         "outer.lr_floor",
                                                         "outer.momentum_warmup",
                                                         "outer.momentum_decay",
                                                         "outer.momentum_floor",
                                                         "lora.r",
                                                         "lora.alpha",
                                                         "lora.targets",
                                                         "lora.dropout",
                                                         "lora.base",
                                                         "lora.init",
                                                         "outer.commit",
                                                         "net.chunk",
                                                         "parallel.schedule",
                                                         "parallel.virtual_stages",
                                                         "parallel.codec_data",
                                                         "parallel.codec_pipeline",
                                                         "parallel.codec_tensor",
                                                         "parallel.codec_state",
                                                         "net.reduction",
                                                         "parallel.sequence_parallel",
                                                         "parallel.zero",
                                                         "net.shares",
                                                         "train.device",
                                                         "train.attention",
                                                         "train.trainer",
                                                         "train.objective",
                                                         "data.over_long",
                                                         "data.skip_bad",
                                                         "data.pack"};

bool left_out(const config::KeyRow<Config>& row, const Config& config, const Config& defaults) {
  return std::ranges::find(kCameLater, row.name) != kCameLater.end() &&
         row.field.get(config) == row.field.get(defaults);
}

/// Whose sum a site's contribution enters first: nothing without groups.
std::vector<std::pair<std::string, std::string>> groups_of(const Config& config) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const SiteConfig& site : config.sites) {
    if (config.net.reduction == "groups") groups.emplace_back(site.name, site.group);
  }
  return groups;
}

/// A mesh changes the order of sums, not the trained model: a run may be resumed under another
/// mesh.
bool is_mesh(std::string_view key) {
  return key == "parallel.tp" || key == "parallel.pp" || key == "parallel.dp";
}

}  // namespace

namespace {
/// The text of a model folder's family; empty for a plain model.
std::string family_text(const ModelFamily& f) {
  if (f == ModelFamily{}) return {};
  std::string layers;
  for (const LayerRule& rule : f.layers) {
    layers += fmt::format("{}", (rule.rotates ? 1 : 0) + (rule.local ? 2 : 0));
  }
  const RopeScaling& r = f.rope;
  return fmt::format(
      "{} rope {} {} {} {} {} {} {} {} {} rotary {} local {} window {} layers {} biases {} {} {} "
      "tensors {} {} norms {} {} {} {} {} act {} scalar {} caps {} {} embedding {}",
      f.name, static_cast<int>(r.type), r.factor, r.original_positions, r.low_freq_factor,
      r.high_freq_factor, r.beta_fast, r.beta_slow, r.truncate, r.attention_factor, f.rotary_dim,
      f.local_rope_theta, f.window, layers, f.qkv_bias, f.out_bias, f.mlp_bias, f.fused_products,
      f.interleaved_heads, static_cast<int>(f.norms), f.wide_qk_norm, f.layer_norm,
      f.parallel_residual, f.norm_weight_offset, static_cast<int>(f.feed_forward), f.query_scalar,
      f.attention_cap, f.logit_cap, f.embedding_scale);
}
}  // namespace

std::string config_digest(const Config& config) {
  const auto defaults = std::make_unique<const Config>();
  std::string text;
  for (const auto& row : config::config_rows()) {
    if (!row.steers || !config.origins.contains(std::string(row.name)) ||
        left_out(row, config, *defaults)) {
      continue;
    }
    const Config& shown = is_mesh(row.name) ? *defaults : config;
    text += fmt::format("{}={}\n", row.name, config::toml_text(row.field.get(shown), row.type));
  }
  for (const SiteConfig& site : config.sites) {
    if (site.pace != 1) text += fmt::format("site.{}.pace={}\n", site.name, site.pace);
  }
  for (const auto& [site, group] : groups_of(config)) {
    text += fmt::format("site.{}.group={}\n", site, group);
  }
  const std::string family = family_text(config.model.family);
  if (!family.empty()) text += fmt::format("model.family={}\n", family);
  return xxh3_128(as_bytes(text)).hex();
}

std::string outcome_digest(const Config& config) {
  const auto defaults = std::make_unique<const Config>();
  // Of the keys that do not steer the trajectory, those that leave the outcome as it is.
  constexpr std::array<std::string_view, 39> kNoMatter = {"schema",
                                                          "run.name",
                                                          "run.out",
                                                          "model.preset",
                                                          "model.init",
                                                          "data.source",
                                                          "train.recompute",
                                                          "train.threads",
                                                          "train.pin",
                                                          "net.transport",
                                                          "net.patience",
                                                          "net.streams",
                                                          "net.dead_after",
                                                          "net.gather",
                                                          "net.plaintext",
                                                          "net.min_sites",
                                                          "net.cap",
                                                          "net.serve",
                                                          "net.quiet",
                                                          "ckpt.every",
                                                          "ckpt.keep",
                                                          "log.sinks",
                                                          "log.http",
                                                          "log.stalled_after",
                                                          "hub.address",
                                                          "hub.key",
                                                          "hub.site",
                                                          "net.detour",
                                                          "train.offload",
                                                          "parallel.patience",
                                                          "outer.placement",
                                                          "parallel.codecs",
                                                          "net.max_solo_rounds",
                                                          "net.heal",
                                                          "net.start",
                                                          "net.deadline",
                                                          "hub.relay",
                                                          "parallel.communicators",
                                                          "data.sources"};
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{}={}\n", name, value);
  };
  for (const auto& row : config::config_rows()) {
    const bool counts = std::find(kNoMatter.begin(), kNoMatter.end(), row.name) == kNoMatter.end();
    if (counts && config.origins.contains(std::string(row.name)) &&
        !left_out(row, config, *defaults)) {
      add(row.name, config::toml_text(row.field.get(config), row.type));
    }
  }
  for (const SiteConfig& site : config.sites) {
    for (const auto& row : config::site_rows()) {
      if (row.steers) add(row.name, config::toml_text(row.field.get(site), row.type));
    }
  }
  for (const auto& [site, group] : groups_of(config)) add("site.group", group);
  const std::string family = family_text(config.model.family);
  if (!family.empty()) add("model.family", family);
  for (const LinkConfig& link : config.links) {
    for (const auto& row : config::link_rows()) {
      if (row.name != "link.trace") {
        add(row.name, config::toml_text(row.field.get(link), row.type));
      } else if (!link.trace.empty()) {
        add(row.name, read_link_trace(link.trace)
                          .digest());  // the content of the trace, wherever the file lies
      }
    }
  }
  for (const FaultConfig& fault : config.faults) {
    for (const auto& row : config::fault_rows()) {
      add(row.name, config::toml_text(row.field.get(fault), row.type));
    }
  }
  return xxh3_128(as_bytes(text)).hex();
}

std::vector<std::pair<std::string, std::string>> common_values(const Config& config) {
  constexpr std::string_view kElsewhere[] = {"model.preset", "model.init", "data.source"};
  constexpr std::string_view kTogether[] = {"eval.every",    "eval.tokens",  "eval.part",
                                            "net.min_sites", "outer.commit", "net.chunk"};
  const auto is_one_of = [](const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != std::ranges::end(names);
  };
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& row : config::config_rows()) {
    const bool counts =
        row.steers ? !is_one_of(kElsewhere, row.name) : is_one_of(kTogether, row.name);
    if (counts && config.origins.contains(std::string(row.name))) {
      values.emplace_back(row.name, config::toml_text(row.field.get(config), row.type));
    }
  }
  const std::string family = family_text(config.model.family);
  if (!family.empty()) values.emplace_back("model family", family);
  // Each site tells the others whether its rounds have a deadline; the length is its own.
  values.emplace_back("net.deadline", config.net.deadline ? "one" : "wait");
  // Whose connections go by way of it; where it listens, a site may name otherwise.
  values.emplace_back("hub.relay", config.hub.relay.empty() ? "none" : "given");
  values.emplace_back("ckpt.every (steps)", std::to_string(config.ckpt.every_steps));
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    values.emplace_back(fmt::format("site[{}].name", i), config.sites[i].name);
    values.emplace_back(fmt::format("site[{}].pace", i), fmt::format("{}", config.sites[i].pace));
  }
  for (const auto& [site, group] : groups_of(config)) {
    values.emplace_back(fmt::format("group of site {}", site), group);
  }
  return values;
}

}  // namespace isthmus
