// SPDX-License-Identifier: Apache-2.0
// Reading: from the sources' tables into the configuration, key by key.
#include "core/config_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/config_values.h"
#include "core/experiment.h"
#include "core/suggest.h"
#include "core/utf8_text.h"

namespace isthmus::config {
namespace {

template <typename Target>
const KeyRow<Target>* find_row(std::span<const KeyRow<Target>> rows, std::string_view name) {
  for (const KeyRow<Target>& row : rows) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

const LaterRow* find_later(std::string_view name) {
  for (const LaterRow& row : later_names()) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  return std::any_of(sections().begin(), sections().end(),
                     [name](const SectionRow& row) { return row.name == name; });
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// Short names of a section's keys: "H", "lr", ...
std::vector<std::string> keys_of_section(std::string_view section) {
  std::vector<std::string> names;
  const auto gather = [&](std::string_view name) {
    if (name.starts_with(section) && name.size() > section.size() && name[section.size()] == '.') {
      names.emplace_back(last_part(name));
    }
  };
  for (const auto& row : config_rows()) {
    gather(row.name);
  }
  for (const auto& row : site_rows()) {
    gather(row.name);
  }
  for (const auto& row : link_rows()) {
    gather(row.name);
  }
  for (const auto& row : fault_rows()) {
    gather(row.name);
  }
  return names;
}

std::string later_text(const LaterRow& row) {
  return fmt::format("'{}' is not available in this version ({})", row.name, row.text);
}

}  // namespace

Loader::Loader(std::string_view text, const std::filesystem::path& name,
               const SchemaContext& schema_context)
    : context(schema_context), diagnostics(text, name.string()) {
  config.file = name;
  config.text = text;
}

Place Loader::place(std::string_view name) const {
  const auto found = keys.find(name);
  return found == keys.end() ? Place{} : found->second.value;
}

std::string Loader::quoted(std::string_view name) const {
  const auto found = keys.find(name);
  if (found != keys.end()) {
    return fmt::format("'{} = {}'", name, found->second.shown);
  }
  const auto* row = find_row(config_rows(), name);
  return row == nullptr
             ? fmt::format("'{}'", name)
             : fmt::format("'{} = {}'", name, toml_text(row->field.get(config), row->type));
}

void Loader::refuse(std::string code, std::string_view name, std::string message,
                    std::string hint) {
  diagnostics.add(std::move(code), place(name), std::move(message), std::move(hint));
}

const MethodInfo* Loader::method() const {
  for (const MethodInfo& info : context.methods) {
    if (info.name == config.method) {
      return &info;
    }
  }
  return nullptr;
}

std::optional<SourceTable> parse_source(std::string_view text, Diagnostics& diagnostics) {
  const std::size_t bad = invalid_utf8(text);
  if (bad != std::string_view::npos) {
    diagnostics.add("E-ENCODING", {},
                    fmt::format("not UTF-8 text: byte {} is 0x{:02x}", bad,
                                static_cast<unsigned char>(text[bad])),
                    "save the file as UTF-8");
    return std::nullopt;
  }
  if (const std::size_t control = control_character(text); control != std::string_view::npos) {
    const auto before = text.substr(0, control);
    Place place{0, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')), 1, 1};
    for (const char c : before.substr(before.rfind('\n') + 1)) {
      place.column += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    }
    diagnostics.add("E-TOML", place,
                    fmt::format("not TOML: control character 0x{:02x}",
                                static_cast<unsigned char>(text[control])),
                    "remove it; text can hold it as \\u00XX");
    return std::nullopt;
  }
  try {
    return parse_toml(text, 0);
  } catch (const SyntaxError& error) {
    const bool twice = error.text.find("redefine") != std::string::npos;
    diagnostics.add(twice ? "E-KEY-TWICE" : "E-TOML", error.place,
                    fmt::format("{}: {}", twice ? "given twice" : "not TOML", error.text));
    return std::nullopt;
  }
}

bool Loader::read(std::string_view text, const std::vector<std::string>& overrides) {
  const std::optional<SourceTable> table = parse_source(text, diagnostics);
  if (!table) {
    return false;
  }
  take(*table);
  for (const std::string& override_text : overrides) {
    read_override(override_text, diagnostics.add_source("--set " + override_text));
  }
  explain_unknown_keys();
  return true;
}

void Loader::take(const SourceTable& table) {
  for (const SourceEntry& entry : table) {
    read_top(entry);
  }
}

void Loader::set(const std::string& name, const SourceValue& value) {
  read_key(name, {name.substr(name.rfind('.') + 1), value.place, value}, true);
}

void Loader::read_override(const std::string& text, int source) {
  const Place here{source, 0, 0, 1};
  const std::size_t equals = text.find('=');
  const auto trim = [](std::string_view part) {
    const std::size_t first = part.find_first_not_of(' ');
    if (first == std::string_view::npos) {
      return std::string();
    }
    return std::string(part.substr(first, part.find_last_not_of(' ') - first + 1));
  };
  const std::string name = trim(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || name.empty() || invalid_utf8(text) != std::string::npos) {
    diagnostics.add("E-SET", here, "must be key=value", "for example --set outer.H=50");
    return;
  }
  SourceValue value = parse_override_value(trim(std::string_view(text).substr(equals + 1)), source);
  const std::size_t dot = name.find('.');
  const std::string section = name.substr(0, dot);
  if (section == "site" || section == "link" || section == "fault") {
    diagnostics.add(
        "E-SET", here, fmt::format("[[{}]] cannot be set from the command line", section),
        section == "fault" ? "edit the file"
                           : "edit the file; `simulate --link 100Mbit/s,80ms` replaces the links");
    return;
  }
  if (dot == std::string::npos) {
    read_top({name, here, std::move(value)});
  } else if (is_experiment_section(section)) {
    diagnostics.add("E-COMPARISON", here,
                    fmt::format("[{}] belongs to a comparison, not to a run", section),
                    "--set of `isthmus compare` takes it");
  } else if (!is_section(section)) {
    const LaterRow* later = find_later(section);
    if (later != nullptr) {
      diagnostics.add("E-NOT-YET", here, later_text(*later));
    } else {
      unknown_section(section, here);
    }
  } else {
    read_key(name, {name.substr(dot + 1), here, std::move(value)});
  }
}

void Loader::read_top(const SourceEntry& entry) {
  if (entry.key == "site") {
    read_elements(entry, site_rows(), config.sites, site_keys, site_places);
  } else if (entry.key == "link") {
    read_elements(entry, link_rows(), config.links, link_keys, link_places);
  } else if (entry.key == "fault") {
    read_elements(entry, fault_rows(), config.faults, fault_keys, fault_places);
  } else if (is_section(entry.key)) {
    read_section(entry.key, entry.value, entry.place);
  } else if (is_experiment_section(entry.key)) {
    diagnostics.add("E-COMPARISON", entry.place,
                    fmt::format("'{}' belongs to a comparison, not to a run", entry.key),
                    "the file is for `isthmus compare`");
  } else if (const LaterRow* later = find_later(entry.key); later != nullptr) {
    diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
  } else if (entry.key == "schema") {
    read_key(entry.key, entry);
  } else if (std::holds_alternative<SourceTable>(entry.value.data)) {
    unknown_section(entry.key, entry.place);
  } else {
    unknown_.emplace_back(entry.key, entry.place);
  }
}

void Loader::read_section(std::string_view section, const SourceValue& value,
                          const Place& key_place) {
  const auto* table = std::get_if<SourceTable>(&value.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", key_place,
                    fmt::format("'{}' must be a section, not {}", section, type_name(value)),
                    fmt::format("write [{}]", section));
    return;
  }
  for (const SourceEntry& entry : *table) {
    read_key(fmt::format("{}.{}", section, entry.key), entry);
  }
}

void Loader::read_key(const std::string& given_name, const SourceEntry& entry, bool replaces) {
  const std::string name(canonical_name(given_name));
  const KeyRow<Config>* row = find_row(config_rows(), name);
  if (row == nullptr) {
    if (const LaterRow* later = find_later(name); later != nullptr) {
      diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
    } else {
      unknown_.emplace_back(name, entry.place);
    }
    return;
  }
  const bool same_source = keys.contains(name) && keys[name].key.source == entry.place.source;
  if (same_source && entry.place.source == 0 && !replaces) {
    diagnostics.add("E-KEY-TWICE", entry.place,
                    fmt::format("'{}' is given twice, here as '{}'", name, given_name),
                    "remove one of them");
    return;
  }
  const Given given{entry.place, entry.value.place, shown(entry.value)};
  const auto value = parse_value(entry.value, {row->name, row->type, row->range, row->choices});
  keys[name] = given;
  if (!value) {
    const ValueError& error = value.error();
    diagnostics.add(error.code, error.place, error.message, error.hint);
    return;
  }
  std::erase_if(deferred_, [row](const Deferred& each) { return each.row == row; });
  if (needs_length_of_run(*value, row->type)) {
    deferred_.push_back({row, *value, given});
  } else {
    row->field.set(config, in_steps(*value, row->type, 0));
  }
}

template <typename Target>
void Loader::read_element(const SourceValue& element, std::string_view section,
                          std::span<const KeyRow<Target>> rows, Target& target,
                          GivenKeys& element_keys) {
  const auto* table = std::get_if<SourceTable>(&element.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", element.place, fmt::format("'{}' must hold tables", section),
                    fmt::format("write [[{}]]", section));
    return;
  }
  for (const SourceEntry& entry : *table) {
    const std::string name = fmt::format("{}.{}", section, entry.key);
    const KeyRow<Target>* row = find_row(rows, name);
    if (row == nullptr) {
      if (const LaterRow* later = find_later(name); later != nullptr) {
        diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
      } else {
        unknown_.emplace_back(name, entry.place);
      }
      continue;
    }
    element_keys[name] = {entry.place, entry.value.place, shown(entry.value)};
    const auto value = parse_value(entry.value, {row->name, row->type, row->range, row->choices});
    if (value) {
      row->field.set(target, *value);
    } else {
      const ValueError& error = value.error();
      diagnostics.add(error.code, error.place, error.message, error.hint);
    }
  }
}

template <typename Target>
void Loader::read_elements(const SourceEntry& entry, std::span<const KeyRow<Target>> rows,
                           std::vector<Target>& targets, std::vector<GivenKeys>& all_keys,
                           std::vector<Place>& places) {
  const auto* array = std::get_if<SourceArray>(&entry.value.data);
  if (array == nullptr) {
    diagnostics.add("E-TYPE", entry.place,
                    fmt::format("'{}' must be an array of tables", entry.key),
                    fmt::format("write [[{0}]], once for each {0}", entry.key));
    return;
  }
  for (const SourceValue& element : *array) {
    Target target;
    all_keys.emplace_back();
    places.push_back(element.place);
    read_element(element, entry.key, rows, target, all_keys.back());
    targets.push_back(std::move(target));
  }
}

void Loader::unknown_section(const std::string& name, const Place& key_place) {
  std::vector<std::string> names;
  for (const SectionRow& row : sections()) {
    names.emplace_back(row.name);
  }
  const auto near = closest(name, names);
  diagnostics.add(
      "E-KEY-UNKNOWN", key_place, fmt::format("unknown section '{}'", name),
      near ? fmt::format("did you mean [{}]?", *near) : fmt::format("sections: {}", join(names)));
}

void Loader::explain_unknown_keys() {
  for (const auto& [name, key_place] : unknown_) {
    unknown_key(name, key_place);
  }
}

void Loader::unknown_key(const std::string& name, const Place& key_place) {
  const std::size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string word(last_part(name));
  std::vector<std::string> candidates = keys_of_section(section);
  std::string of = fmt::format("keys of [{}]", section);
  if (section == "outer" && method() != nullptr) {
    candidates = method()->keys;
    candidates.insert(candidates.begin(), "method");
    of = fmt::format("keys of method '{}'", config.method);
  }
  std::string hint;
  if (const auto near = closest(word, candidates)) {
    hint = fmt::format("did you mean '{}'?", *near);
  } else {
    for (const auto& row : config_rows()) {
      if (last_part(row.name) == word && row.name != name) {
        const std::string_view home = row.name.substr(0, row.name.find('.'));
        hint = fmt::format("'{}' belongs to [{}]", word, home);
        break;
      }
    }
  }
  if (section.empty()) {
    hint += hint.empty() ? "keys stand in sections such as [train]" : "";
  } else {
    hint += fmt::format("{}({}: {})   isthmus explain {}", hint.empty() ? "" : "   ", of,
                        join(candidates), section);
  }
  diagnostics.add("E-KEY-UNKNOWN", key_place, fmt::format("unknown key '{}'", name), hint);
}

}  // namespace isthmus::config
