// SPDX-License-Identifier: Apache-2.0
// Reading: from the sources' tables into the configuration, key by key.
#include "config/load/config_load_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/load/config_load_text.h"
#include "config/load/config_load_toml.h"
#include "config/schema/config_schema_values.h"
#include "config/schema/experiment.h"
#include "core/base/suggest.h"
#include "core/base/utf8_text.h"

namespace isthmus::config {
namespace {

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

bool Reader::read(std::string_view text, const Overrides& overrides) {
  const std::optional<SourceTable> table = parse_source(text, draft_.diagnostics);
  if (!table) {
    return false;
  }
  read_table(*table);
  for (const Override& each : overrides.all()) {
    read_override(each, draft_.diagnostics.add_source(each.label()));
  }
  explain_unknown_keys();
  return true;
}

void Reader::read_table(const SourceTable& table) {
  for (const SourceEntry& entry : table) {
    read_top(entry);
  }
}

void Reader::replace(const std::string& name, const SourceValue& value) {
  read_key(name, {name.substr(name.rfind('.') + 1), value.place, value}, true);
}

void Reader::read_override(const Override& given, int source) {
  const std::string& text = given.text;
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
    draft_.diagnostics.add("E-SET", here, "must be key=value",
                           fmt::format("for example {} outer.H=50", given.flag));
    return;
  }
  SourceValue value = parse_override_value(trim(std::string_view(text).substr(equals + 1)), source);
  const std::size_t dot = name.find('.');
  const std::string section = name.substr(0, dot);
  const bool by_command = given.flag.starts_with("--");
  if (section == "site" || section == "link" || section == "fault") {
    draft_.diagnostics.add(
        "E-SET", here,
        fmt::format("[[{}]] cannot be set {}", section,
                    by_command ? "from the command line" : "by a key and a value"),
        section == "fault" || !by_command
            ? "edit the file"
            : "edit the file; `simulate --link 100Mbit/s,80ms` replaces the links");
    return;
  }
  if (dot == std::string::npos) {
    read_top({name, here, std::move(value)});
  } else if (is_experiment_section(section)) {
    draft_.diagnostics.add("E-COMPARISON", here,
                           fmt::format("[{}] belongs to a comparison, not to a run", section),
                           "--set of `isthmus compare` takes it");
  } else if (!is_section(section)) {
    const LaterRow* later = find_later(section);
    if (later != nullptr) {
      draft_.diagnostics.add("E-NOT-YET", here, later_text(*later));
    } else {
      unknown_section(section, here);
    }
  } else {
    read_key(name, {name.substr(dot + 1), here, std::move(value)});
  }
}

void Reader::read_top(const SourceEntry& entry) {
  if (entry.key == "site") {
    read_elements(entry, site_rows(), draft_.config.sites, draft_.sites);
  } else if (entry.key == "link") {
    read_elements(entry, link_rows(), draft_.config.links, draft_.links);
  } else if (entry.key == "fault") {
    read_elements(entry, fault_rows(), draft_.config.faults, draft_.faults);
  } else if (is_section(entry.key)) {
    read_section(entry.key, entry.value, entry.place);
  } else if (is_experiment_section(entry.key)) {
    draft_.diagnostics.add("E-COMPARISON", entry.place,
                           fmt::format("'{}' belongs to a comparison, not to a run", entry.key),
                           "the file is for `isthmus compare`");
  } else if (const LaterRow* later = find_later(entry.key); later != nullptr) {
    draft_.diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
  } else if (entry.key == "schema") {
    read_key(entry.key, entry);
  } else if (std::holds_alternative<SourceTable>(entry.value.data)) {
    unknown_section(entry.key, entry.place);
  } else {
    unknown_.emplace_back(entry.key, entry.place);
  }
}

void Reader::read_section(std::string_view section, const SourceValue& value,
                          const Place& key_place) {
  const auto* table = std::get_if<SourceTable>(&value.data);
  if (table == nullptr) {
    draft_.diagnostics.add("E-TYPE", key_place,
                           fmt::format("'{}' must be a section, not {}", section, type_name(value)),
                           fmt::format("write [{}]", section));
    return;
  }
  for (const SourceEntry& entry : *table) {
    read_key(fmt::format("{}.{}", section, entry.key), entry);
  }
}

bool Reader::read_gone(const std::string& name, const SourceEntry& entry, bool replaces) {
  const auto* value = std::get_if<std::string>(&entry.value.data);
  for (const GoneRow& gone : gone_rows()) {
    if (gone.name != name || value == nullptr) continue;
    if (!gone.value.empty() && gone.value != *value) continue;
    if (!gone.instead.empty()) {
      SourceEntry replaced = entry;
      replaced.value.data = std::string(gone.instead);
      read_key(name, replaced, replaces);
    }
    if (value->empty()) return true;
    draft_.noted_keys.push_back(name);
    draft_.config.notes.push_back(fmt::format(
        "{} = \"{}\" of an earlier version is {}: {}; no result depends on it", name, *value,
        gone.instead.empty() ? "passed over" : fmt::format("read as \"{}\"", gone.instead),
        gone.text));
    return true;
  }
  return false;
}

void Reader::read_key(const std::string& given_name, const SourceEntry& entry, bool replaces) {
  const std::string name(canonical_name(given_name));
  // This value takes the place of an earlier one, so a note about that one would mislead.
  for (std::size_t i = draft_.noted_keys.size(); i-- > 0;) {
    if (draft_.noted_keys[i] != name) continue;
    draft_.noted_keys.erase(draft_.noted_keys.begin() + static_cast<std::ptrdiff_t>(i));
    draft_.config.notes.erase(draft_.config.notes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (read_gone(name, entry, replaces)) return;
  const KeyRow<Config>* row = find_row(config_rows(), name);
  if (row == nullptr) {
    if (const LaterRow* later = find_later(name); later != nullptr) {
      draft_.diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
    } else {
      unknown_.emplace_back(name, entry.place);
    }
    return;
  }
  const bool same_source = draft_.given(name) && draft_.keys[name].key.source == entry.place.source;
  if (same_source && entry.place.source == 0 && !replaces) {
    draft_.diagnostics.add("E-KEY-TWICE", entry.place,
                           fmt::format("'{}' is given twice, here as '{}'", name, given_name),
                           "remove one of them");
    return;
  }
  const Given given{entry.place, entry.value.place, shown(entry.value)};
  const auto value = parse_value(entry.value, {row->name, row->type, row->range, row->choices});
  draft_.keys[name] = given;
  if (!value) {
    const ValueError& error = value.error();
    draft_.diagnostics.add(error.code, error.place, error.message, error.hint);
    return;
  }
  std::erase_if(draft_.shares_of_run, [row](const ShareOfRun& each) { return each.row == row; });
  if (needs_length_of_run(*value, row->type)) {
    draft_.shares_of_run.push_back({row, *value, given});
  } else {
    row->field.set(draft_.config, in_steps(*value, row->type, 0));
  }
}

template <typename Target>
void Reader::read_element(const SourceValue& element, std::string_view section,
                          std::span<const KeyRow<Target>> rows, Target& target,
                          GivenKeys& element_keys) {
  const auto* table = std::get_if<SourceTable>(&element.data);
  if (table == nullptr) {
    draft_.diagnostics.add("E-TYPE", element.place, fmt::format("'{}' must hold tables", section),
                           fmt::format("write [[{}]]", section));
    return;
  }
  for (const SourceEntry& entry : *table) {
    const std::string name = fmt::format("{}.{}", section, entry.key);
    const KeyRow<Target>* row = find_row(rows, name);
    if (row == nullptr) {
      if (const LaterRow* later = find_later(name); later != nullptr) {
        draft_.diagnostics.add("E-NOT-YET", entry.place, later_text(*later));
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
      draft_.diagnostics.add(error.code, error.place, error.message, error.hint);
    }
  }
}

template <typename Target>
void Reader::read_elements(const SourceEntry& entry, std::span<const KeyRow<Target>> rows,
                           std::vector<Target>& targets, GivenElements& given) {
  const auto* array = std::get_if<SourceArray>(&entry.value.data);
  if (array == nullptr) {
    draft_.diagnostics.add("E-TYPE", entry.place,
                           fmt::format("'{}' must be an array of tables", entry.key),
                           fmt::format("write [[{0}]], once for each {0}", entry.key));
    return;
  }
  for (const SourceValue& element : *array) {
    Target target;
    given.keys.emplace_back();
    given.places.push_back(element.place);
    read_element(element, entry.key, rows, target, given.keys.back());
    targets.push_back(std::move(target));
  }
}

void Reader::unknown_section(const std::string& name, const Place& key_place) {
  std::vector<std::string> names;
  for (const SectionRow& row : sections()) {
    names.emplace_back(row.name);
  }
  const auto near = closest(name, names);
  draft_.diagnostics.add(
      "E-KEY-UNKNOWN", key_place, fmt::format("unknown section '{}'", name),
      near ? fmt::format("did you mean [{}]?", *near) : fmt::format("sections: {}", join(names)));
}

void Reader::explain_unknown_keys() {
  for (const auto& [name, key_place] : unknown_) {
    unknown_key(name, key_place);
  }
}

void Reader::unknown_key(const std::string& name, const Place& key_place) {
  const std::size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string word(last_part(name));
  std::vector<std::string> candidates = keys_of_section(section);
  std::string of = fmt::format("keys of [{}]", section);
  if (section == "outer" && draft_.method() != nullptr) {
    candidates = draft_.method()->keys;
    candidates.insert(candidates.begin(), "method");
    of = fmt::format("keys of method '{}'", draft_.config.method);
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
  draft_.diagnostics.add("E-KEY-UNKNOWN", key_place, fmt::format("unknown key '{}'", name), hint);
}

}  // namespace isthmus::config
