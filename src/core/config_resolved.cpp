// SPDX-License-Identifier: Apache-2.0
// The configuration written out: every value in effect with its origin, and the digest over those
// that steer the trajectory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/config_loader.h"
#include "core/config_values.h"
#include "core/device_request.h"
#include "core/hash.h"
#include "core/link_trace.h"
#include "core/storage.h"
#include "core/ways_file.h"

namespace isthmus {
namespace config {
namespace {

constexpr std::size_t kCommentColumn = 44;

void write_line(std::string& text, std::string_view key, const std::string& value,
                std::string_view origin) {
  std::string line = fmt::format("{} = {}", key, value);
  line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
  text += fmt::format("{}# {}\n", line, toml_comment(origin));
}

/// Value of a row as it is written; relative paths become absolute.
std::string written(const Config& config, const KeyRow<Config>& row) {
  if (row.name == "data.source") {
    return toml_quote(config.located_source());
  }
  if (row.name == "model.init" && !config.model.init.empty()) {
    return toml_quote(std::filesystem::absolute(config.locate(config.model.init)).string());
  }
  if (row.name == "train.offload" && !config.train.offload.empty()) {
    return toml_quote(std::filesystem::absolute(config.locate(config.train.offload)).string());
  }
  if (row.name == "parallel.communicators" && !config.rank_communicators.empty() &&
      !names_device_sums(config)) {
    return toml_quote(std::filesystem::absolute(config.locate(config.rank_communicators)).string());
  }
  const Value value = row.field.get(config);
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && text->empty() ? "" : toml_text(value, row.type);
}

/// Keys that mean something else when they are given than when they are left out: patience in a
/// simulation, how much of a small validation part is asked for, whether ranks that are threads are
/// waited for, what `isthmus plan mesh` is free to choose, and how long a site trains on alone, for
/// which other keys say whether it may.
bool default_depends_on_the_run(std::string_view name) {
  constexpr std::array<std::string_view, 6> kDepend = {
      "net.patience",      "eval.tokens",        "parallel.zero", "parallel.sequence_parallel",
      "parallel.patience", "net.max_solo_rounds"};
  return std::ranges::find(kDepend, name) != kDepend.end();
}

/// "default", or "default: " and why it is that: no place in a file looks like it.
bool is_default(const Origin& origin) {
  return origin.text == "default" || origin.text.starts_with("default: ");
}

template <typename Target>
void write_elements(std::string& text, std::string_view section,
                    std::span<const KeyRow<Target>> rows, const std::vector<Target>& elements,
                    const std::map<std::string, Origin>& origins) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    text += fmt::format("\n[[{}]]\n", section);
    for (const auto& row : rows) {
      const std::string value = toml_text(row.field.get(elements[i]), row.type);
      const std::string key(row.name.substr(section.size() + 1));
      const auto origin = origins.find(fmt::format("{}[{}].{}", section, i, key));
      if (!value.empty() && origin != origins.end()) {
        write_line(text, key, value, origin->second.text);
      }
    }
  }
}

template <typename Target>
void note_elements(Config& config, const Diagnostics& diagnostics, std::string_view section,
                   std::span<const KeyRow<Target>> rows, const std::vector<Target>& elements,
                   const std::vector<GivenKeys>& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (const auto& row : rows) {
      const auto found = given[i].find(row.name);
      const bool absent = std::holds_alternative<std::monostate>(row.field.get(elements[i]));
      if (absent) {
        continue;
      }
      const std::string key(row.name.substr(section.size() + 1));
      config.origins[fmt::format("{}[{}].{}", section, i, key)] = {
          found == given[i].end() ? "default" : diagnostics.where(found->second.value)};
    }
  }
}

}  // namespace

void Loader::note_origins() {
  const MethodInfo* info = method();
  for (const auto& row : config_rows()) {
    const std::string name(row.name);
    const bool outer_key = name.starts_with("outer.") && name != "outer.method";
    const bool used_by_method =
        !outer_key || info == nullptr || info->takes(std::string_view(name).substr(6));
    const bool workers_from_sites = name == "run.workers" && !site_keys.empty();
    const bool absent = std::holds_alternative<std::monostate>(row.field.get(config));
    if (absent || !used_by_method || workers_from_sites ||
        (row.used != nullptr && !row.used(config))) {
      continue;
    }
    const auto found = keys.find(name);
    const auto preset = default_origins.find(name);
    config.origins[name] = {found != keys.end() ? diagnostics.where(found->second.value)
                            : preset != default_origins.end() ? preset->second
                                                              : "default"};
  }
  note_elements(config, diagnostics, "site", site_rows(), config.sites, site_keys);
  note_elements(config, diagnostics, "link", link_rows(), config.links, link_keys);
  note_elements(config, diagnostics, "fault", fault_rows(), config.faults, fault_keys);
}

}  // namespace config

void replace_links(Config& config, std::vector<LinkConfig> links, const std::string& origin) {
  std::erase_if(config.origins, [](const auto& entry) { return entry.first.starts_with("link["); });
  config.links = std::move(links);
  for (std::size_t i = 0; i < config.links.size(); ++i) {
    for (const auto& row : config::link_rows()) {
      if (!std::holds_alternative<std::monostate>(row.field.get(config.links[i]))) {
        const std::string key(row.name.substr(row.name.find('.') + 1));
        config.origins[fmt::format("link[{}].{}", i, key)] = {origin};
      }
    }
  }
}

std::string resolved_toml(const Config& config) {
  std::string text;
  std::string section;
  for (const auto& row : config::config_rows()) {
    const auto origin = config.origins.find(std::string(row.name));
    const std::string value = config::written(config, row);
    if (origin == config.origins.end() || value.empty() ||
        (config::is_default(origin->second) && config::default_depends_on_the_run(row.name))) {
      continue;
    }
    const std::size_t dot = row.name.find('.');
    if (dot != std::string_view::npos && row.name.substr(0, dot) != section) {
      section = row.name.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    config::write_line(text, row.name.substr(dot == std::string_view::npos ? 0 : dot + 1), value,
                       origin->second.text);
  }
  const bool sites_from_file = config.origins.contains("site[0].name");
  if (sites_from_file) {
    config::write_elements(text, "site", config::site_rows(), config.sites, config.origins);
  }
  config::write_elements(text, "link", config::link_rows(), config.links, config.origins);
  config::write_elements(text, "fault", config::fault_rows(), config.faults, config.origins);
  return text;
}

namespace {

/// Keys that came after the first results on record: those have the digests of configurations
/// without them, so a key that keeps its default is left out.
constexpr std::array<std::string_view, 15> kCameLater = {"outer.late",
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
                                                         "train.attention"};

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

/// A mesh changes the order of sums, not what is trained: a run may go on under another.
bool is_mesh(std::string_view key) {
  return key == "parallel.tp" || key == "parallel.pp" || key == "parallel.dp";
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
  return xxh3_128(as_bytes(text)).hex();
}

std::string outcome_digest(const Config& config) {
  const auto defaults = std::make_unique<const Config>();
  // Of the keys that do not steer the trajectory, those that leave the outcome as it is.
  constexpr std::array<std::string_view, 38> kNoMatter = {"schema",
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
                                                          "net.deadline",
                                                          "hub.relay",
                                                          "net.table",
                                                          "parallel.communicators"};
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
  // What it says, wherever it lies.
  if (!config.net.ways.empty()) add("net.table", ways_digest(config.net.ways));
  for (const LinkConfig& link : config.links) {
    for (const auto& row : config::link_rows()) {
      if (row.name != "link.trace") {
        add(row.name, config::toml_text(row.field.get(link), row.type));
      } else if (!link.trace.empty()) {
        add(row.name, read_link_trace(link.trace).digest());  // what it says, wherever it lies
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
  // Each site tells the others what it begins where rounds have a deadline; how long is its own.
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

std::vector<KeyInfo> config_keys() {
  std::vector<KeyInfo> keys;
  const auto add = [&keys](const auto& rows, const auto& defaults) {
    for (const auto& row : rows) {
      std::string fallback = config::toml_text(row.field.get(defaults), row.type);
      if (fallback == "\"\"" || fallback == "[\"\", \"\"]" ||
          row.type == config::Type::kTokensUnit || row.type == config::Type::kRate ||
          row.name.starts_with("fault.")) {
        fallback.clear();  // must be given, or absent by default
      }
      keys.push_back(
          {std::string(row.name), config::type_text(row.type, row.choices), fallback,
           row.range.text(), std::string(row.text), std::string(row.used_by),
           fmt::format("{} = {}", row.name.substr(row.name.rfind('.') + 1), row.example)});
    }
  };
  const auto whole = std::make_unique<const Config>();  // on the stack GCC 12 warns of its strings
  add(config::config_rows(), *whole);
  add(config::site_rows(), SiteConfig{});
  add(config::link_rows(), LinkConfig{});
  add(config::fault_rows(), FaultConfig{});
  add(config::experiment_rows(), ExperimentSettings{});
  return keys;
}

}  // namespace isthmus
