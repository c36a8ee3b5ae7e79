// SPDX-License-Identifier: Apache-2.0
// The draft of one load: the configuration as far as it is known, which keys are given and where,
// and the errors found so far. The reader (config_load_reader.h) fills the draft from the sources,
// `complete` (config_load_defaults.h) adds defaults, and `validate` (config_check.h) checks the
// result. The caller of a load owns the draft.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/load/config_load_diagnostics.h"
#include "config/schema/config_schema.h"

namespace isthmus::config {

/// A key that was given, with the places of its name and its value.
struct Given {
  Place key;
  Place value;
  std::string shown;  // the value, for messages
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

/// An array of tables such as [[site]]: the given keys and the place of each element.
struct GivenElements {
  std::vector<GivenKeys> keys;
  std::vector<Place> places;
};

/// A key whose value holds a share of the run. The draft sets the key once the run's length is
/// known.
struct ShareOfRun {
  const KeyRow<Config>* row;
  Value value;  // a StepCount or a list of StepCounts
  Given given;
};

struct Draft {
  Draft(std::string_view text, const std::filesystem::path& name,
        const SchemaContext& schema_context);

  [[nodiscard]] bool given(std::string_view name) const { return keys.contains(name); }
  /// Place of a given key's value, or of nothing.
  [[nodiscard]] Place place(std::string_view name) const;
  /// 'outer.H = 0', with the value as given, or the value in effect.
  [[nodiscard]] std::string quoted(std::string_view name) const;
  /// Adds an error at the value of key `name`.
  void refuse(std::string code, std::string_view name, std::string_view message,
              std::string_view hint = {});
  /// The method that outer.method names; null for an unknown method.
  [[nodiscard]] const MethodInfo* method() const;

  Config config;
  const SchemaContext& schema;
  Diagnostics diagnostics;
  GivenKeys keys;
  GivenElements sites, links, faults;
  std::vector<ShareOfRun> shares_of_run;
  std::vector<std::string> noted_keys;                 // of each of config.notes, its key
  std::map<std::string, std::string> default_origins;  // keys that a preset, folder or method set
};

}  // namespace isthmus::config
