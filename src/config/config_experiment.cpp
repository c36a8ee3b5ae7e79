// SPDX-License-Identifier: Apache-2.0
// A comparison's file read into its parts: settings, base, variants, grids.
#include "config/config_experiment.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/config_experiment_reader.h"
#include "config/load/config_load_toml.h"
#include "config/schema/config_schema_values.h"
#include "core/base/suggest.h"
#include "core/base/trimmed.h"

namespace isthmus::config {
namespace {

/// "trials" for "compare.tune.trials" in section "compare.tune".
std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> names;
  for (const auto& row : experiment_rows()) {
    if (!row.name.starts_with(section) || row.name.size() <= section.size() ||
        row.name[section.size()] != '.') {
      continue;
    }
    const std::string_view rest = row.name.substr(section.size() + 1);
    const std::string name(rest.substr(0, rest.find('.')));
    if (names.empty() || names.back() != name) {
      names.push_back(name);
    }
  }
  return names;
}

/// Names of folders: no dot, so that they meet none of the files beside them.
bool is_variant_name(std::string_view name) {
  return !name.empty() && name.size() <= 40 && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
         });
}

}  // namespace

void ExperimentReader::read(const SourceTable& table) {
  for (const SourceEntry& entry : table) {
    if (entry.key == "variant") {
      read_variants(entry);
    } else if (is_experiment_section(entry.key)) {
      read_section(entry.key, entry);
    } else {
      base_.push_back(entry);
    }
  }
  for (std::size_t i = 0; i < parts_.overrides.all().size(); ++i) {
    read_override(i);
  }
  settle_variants();
  settle_settings();
}

void ExperimentReader::read_section(const std::string& section, const SourceEntry& entry) {
  const auto* table = std::get_if<SourceTable>(&entry.value.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", entry.place,
                    fmt::format("'{}' must be a section, not {}", section, type_name(entry.value)),
                    fmt::format("write [{}]", section));
    return;
  }
  for (const SourceEntry& each : *table) {
    read_setting(fmt::format("{}.{}", section, each.key), each);
  }
}

void ExperimentReader::read_setting(const std::string& name, const SourceEntry& entry) {
  if (name == "compare.tune") {
    read_section(name, entry);
    return;
  }
  if (name == "compare.tune.space") {
    space_ = read_space(entry.value, diagnostics);
    return;
  }
  const auto* row = find_row(experiment_rows(), name);
  if (row == nullptr) {
    unknown_setting(name, entry.place);
    return;
  }
  places_[name] = entry.value.place;
  const auto value = parse_value(entry.value, {row->name, row->type, row->range, row->choices});
  if (!value) {
    const ValueError& error = value.error();
    diagnostics.add(error.code, error.place, error.message, error.hint);
  } else if (needs_length_of_run(*value, row->type)) {
    diagnostics.add("E-VALUE", entry.value.place,
                    fmt::format("'{}' must be a count of steps, not a share of the run", name));
  } else {
    row->field.set(parts_.settings, in_steps(*value, row->type, 0));
  }
}

void ExperimentReader::unknown_setting(const std::string& name, const Place& place) {
  const std::size_t dot = name.rfind('.');
  const std::string section = name.substr(0, dot);
  const std::vector<std::string> candidates = keys_of(section);
  const auto near = closest(name.substr(dot + 1), candidates);
  diagnostics.add("E-KEY-UNKNOWN", place, fmt::format("unknown key '{}'", name),
                  fmt::format("{}(keys of [{}]: {})   isthmus explain {}",
                              near ? fmt::format("did you mean '{}'?   ", *near) : "", section,
                              join(candidates), section.substr(0, section.find('.'))));
}

void ExperimentReader::read_variants(const SourceEntry& entry) {
  const auto* table = std::get_if<SourceTable>(&entry.value.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", entry.place, "'variant' must be a section with a name",
                    "write [variant.NAME], once for each");
    return;
  }
  for (const SourceEntry& each : *table) {
    const auto* keys = std::get_if<SourceTable>(&each.value.data);
    if (keys == nullptr) {
      diagnostics.add("E-TYPE", each.place, fmt::format("'variant.{}' must be a section", each.key),
                      fmt::format("write [variant.{}]", each.key));
      continue;
    }
    if (!is_variant_name(each.key)) {
      diagnostics.add(
          "E-VALUE", each.place,
          fmt::format("variant '{}': a name must be 1 to 40 letters, digits, '-' or '_'", each.key),
          "it names a folder");
    }
    Variant variant{.name = each.key, .place = each.place};
    for (const SourceEntry& key : *keys) {
      if (key.key == "tune") {
        read_own_tune(variant, key);
      } else if (is_experiment_section(key.key)) {
        diagnostics.add("E-COMPARISON", key.place, fmt::format("[{}] within a variant", key.key),
                        "it stands once, beside the variants");
      } else {
        variant.overlay.push_back(key);
      }
    }
    variants_.push_back(std::move(variant));
  }
  // The parser sorts by name; people read the file.
  std::sort(variants_.begin(), variants_.end(), [](const Variant& a, const Variant& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
}

void ExperimentReader::read_own_tune(Variant& variant, const SourceEntry& entry) {
  const auto* table = std::get_if<SourceTable>(&entry.value.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", entry.place,
                    fmt::format("'tune' must be a table, not {}", type_name(entry.value)),
                    "tune = { space = { \"inner.lr\" = [1e-3, 2e-3] } }");
    return;
  }
  for (const SourceEntry& each : *table) {
    if (each.key == "space") {
      variant.space = read_space(each.value, diagnostics);
    } else {
      diagnostics.add("E-KEY-UNKNOWN", each.place,
                      fmt::format("unknown key 'variant.{}.tune.{}'", variant.name, each.key),
                      find_row(experiment_rows(), "compare.tune." + each.key) != nullptr
                          ? "it is the same for every variant: [compare.tune]"
                          : "a variant's tune has one key: space");
    }
  }
}

void ExperimentReader::read_override(std::size_t index) {
  const Override& given = parts_.overrides.all()[index];
  const std::string& text = given.text;
  const Place here{diagnostics.add_source(given.label()), 0, 0, 1};
  const std::size_t equals = text.find('=');
  const std::string name(trimmed(std::string_view(text).substr(0, equals), " "));
  const std::string section = name.substr(0, name.find('.'));
  if (equals == std::string::npos || !is_experiment_section(section)) {
    for_all_.push_back({index, text});  // of the runs, where its form is judged too
    return;
  }
  if (section == "variant") {
    const std::size_t second = name.find('.', section.size() + 1);
    const std::string variant =
        name.substr(std::min(name.size(), section.size() + 1),
                    second == std::string::npos ? std::string::npos : second - section.size() - 1);
    if (second == std::string::npos) {
      diagnostics.add("E-SET", here, "must name a variant and a key",
                      "for example --set variant.diloco.outer.H=50");
      return;
    }
    for_one_.push_back({variant, {index, text.substr(text.find(name) + second + 1)}, here});
    return;
  }
  if (name == "compare.tune.space" || name == "compare.tune") {
    diagnostics.add("E-SET", here, "a space cannot be set from the command line", "edit the file");
    return;
  }
  const std::string value(trimmed(std::string_view(text).substr(equals + 1), " "));
  const SourceValue source = parse_override_value(value, here.source);
  read_setting(name, {name.substr(name.rfind('.') + 1), here, source});
}

void ExperimentReader::settle_variants() {
  if (variants_.size() < 2) {
    diagnostics.add("E-COMPARISON", {},
                    variants_.empty() ? "no [variant.NAME] in the file"
                                      : "a comparison with a single [variant.NAME]",
                    "it takes two or more; a run alone is for `isthmus train` and `simulate`");
  }
  constexpr std::size_t kMostVariants = 100;
  if (variants_.size() > kMostVariants) {
    diagnostics.add("E-RANGE", variants_[kMostVariants].place,
                    fmt::format("more than {} variants", kMostVariants));
    variants_.resize(kMostVariants);
  }
  for (const Variant& variant : variants_) {
    parts_.variants.push_back({variant.name, variant.space ? *variant.space : space_});
    parts_.laid.push_back(laid_over(base_, variant.overlay));
    parts_.overrides_of.push_back(for_all_);
  }
  for (const OneOverride& each : for_one_) {
    const auto found = index_of(each.variant);
    if (!found) {
      unknown_variant(fmt::format("'variant.{}'", each.variant), each.variant, each.place);
      continue;
    }
    parts_.overrides_of[*found].push_back(each.text);
  }
}

std::optional<std::size_t> ExperimentReader::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < parts_.variants.size(); ++i) {
    if (parts_.variants[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

void ExperimentReader::unknown_variant(const std::string& what, const std::string& name,
                                       const Place& place) {
  std::vector<std::string> names;
  for (const ExperimentVariant& variant : parts_.variants) {
    names.push_back(variant.name);
  }
  const auto near = closest(name, names);
  diagnostics.add(
      "E-VALUE", place, fmt::format("{} names no variant", what),
      near ? fmt::format("did you mean '{}'?", *near) : fmt::format("variants: {}", join(names)));
}

Place ExperimentReader::place_of(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? Place{} : found->second;
}

void ExperimentReader::settle_settings() {
  const ExperimentSettings& settings = parts_.settings;
  for (const auto& [key, name] : {std::pair{"compare.baseline", settings.baseline},
                                  {"target.relative_to", settings.target_relative_to}}) {
    if (!name.empty() && !index_of(name)) {
      unknown_variant(fmt::format("'{} = \"{}\"'", key, name), name, place_of(key));
    }
  }
  parts_.baseline = index_of(settings.baseline).value_or(0);
  for (const char* relative : {"target.relative_to", "target.factor"}) {
    if (settings.target_value && places_.contains(relative)) {
      diagnostics.add("E-CONFLICT", place_of(relative),
                      fmt::format("'target.value' together with '{}'", relative),
                      "a target is a loss, or relative to a variant's");
    }
  }
  for (const std::string& link : settings.links) {
    try {
      (void)parse_link(link);
    } catch (const ConfigError& error) {
      diagnostics.add("E-VALUE", place_of("compare.links"), error.what());
    }
  }
  const auto seeds = std::span(settings.seeds);
  if (std::find(seeds.begin(), seeds.end(), settings.tune_seed) != seeds.end()) {
    diagnostics.add(
        "E-CONFLICT",
        place_of(places_.contains("compare.tune.seed") ? "compare.tune.seed" : "compare.seeds"),
        fmt::format("seed {} is both tuned on and reported", settings.tune_seed),
        "what is tuned on a seed looks better on it; choose another compare.tune.seed");
  }
}

}  // namespace isthmus::config
