// SPDX-License-Identifier: Apache-2.0
// The state of one load: what is given and where, the configuration as far as it is known, the
// errors found. `read` fills it from the sources, `complete` adds defaults, `check` looks across
// keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config_diagnostics.h"
#include "core/config_schema.h"

namespace isthmus::config {

/// Parses `text` after checks that give plainer messages than the parser. RETURNS: nothing when it
/// is not TOML; the error is noted.
[[nodiscard]] std::optional<SourceTable> parse_source(std::string_view text,
                                                      Diagnostics& diagnostics);

/// The text of a regular file of bounded size. THROWS: SystemError, ConfigError.
[[nodiscard]] std::string read_config_file(const std::filesystem::path& file);

/// A key that was given: where its name and its value stand.
struct Given {
  Place key;
  Place value;
  std::string shown;  // the value, for messages
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

struct Loader {
  Loader(std::string_view text, const std::filesystem::path& name,
         const SchemaContext& schema_context);

  /// Parses and reads every key. RETURNS: false when the text is not TOML; the error is noted.
  bool read(std::string_view text, const std::vector<std::string>& overrides);
  // The steps of `read`, for a file that is laid together from parts.
  void take(const SourceTable& table);
  /// "outer.H=50"; `source`: what the diagnostics know it by.
  void read_override(const std::string& text, int source);
  /// One key from elsewhere, in the place of what was read so far.
  void set(const std::string& name, const SourceValue& value);
  /// After the last key, so that a hint can name the keys of the method that was chosen.
  void explain_unknown_keys();

  void complete();
  void check();
  void note_origins();
  /// The entries of [[link]], between sites of these names.
  void check_links(const std::vector<std::string>& names);
  /// The rates of links that have a trace: the mean of the file, whose path becomes absolute.
  void take_link_traces();
  void check_faults(const std::vector<std::string>& names);

  [[nodiscard]] bool given(std::string_view name) const { return keys.contains(name); }
  /// Place of a given key's value, or of nothing.
  [[nodiscard]] Place place(std::string_view name) const;
  /// 'outer.H = 0', with the value as given, or as it stands.
  [[nodiscard]] std::string quoted(std::string_view name) const;
  void refuse(std::string code, std::string_view name, std::string message, std::string hint = {});
  [[nodiscard]] const MethodInfo* method() const;

  Config config;
  const SchemaContext& context;
  Diagnostics diagnostics;
  GivenKeys keys;
  std::vector<GivenKeys> site_keys;
  std::vector<GivenKeys> link_keys;
  std::vector<GivenKeys> fault_keys;
  std::vector<Place> site_places;
  std::vector<Place> link_places;
  std::vector<Place> fault_places;
  std::map<std::string, std::string> default_origins;  // keys that a preset, folder or method set

 private:
  struct Deferred {
    const KeyRow<Config>* row;
    Value value;  // a StepCount or a list of them, with a share of the run in it
    Given given;
  };
  void read_top(const SourceEntry& entry);
  void read_section(std::string_view section, const SourceValue& value, const Place& key_place);
  void read_key(const std::string& name, const SourceEntry& entry, bool replaces = false);
  /// An array of tables, with the keys given and the place of each.
  template <typename Target>
  void read_elements(const SourceEntry& entry, std::span<const KeyRow<Target>> rows,
                     std::vector<Target>& targets, std::vector<GivenKeys>& all_keys,
                     std::vector<Place>& places);
  template <typename Target>
  void read_element(const SourceValue& element, std::string_view section,
                    std::span<const KeyRow<Target>> rows, Target& target, GivenKeys& element_keys);
  void unknown_key(const std::string& name, const Place& key_place);
  void unknown_section(const std::string& name, const Place& key_place);

  void apply_preset();
  void apply_init();
  void apply_method_defaults();
  void apply_optimizer_defaults();
  void apply_schedule_defaults();
  void make_sites();
  void apply_codec_policy();
  void resolve_percentages();

  void check_outer_method();
  void check_unused();
  void check_run();
  void check_train();
  void check_inner();
  void check_model();
  void check_outer();
  void check_mesh();
  void check_zero();
  void check_device();
  void check_attention();
  void check_paces();
  void check_net();
  void check_hub_site();
  void check_hub_relay();
  void check_groups();
  void check_shares();
  void take_ways();
  [[nodiscard]] std::pair<std::string, std::string> alone_for_nothing() const;
  void apply_solo_default();
  void check_solo();
  void check_deadline();
  void check_sites();

  std::vector<Deferred> deferred_;
  std::vector<std::pair<std::string, Place>> unknown_;
};

}  // namespace isthmus::config
