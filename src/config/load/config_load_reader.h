// SPDX-License-Identifier: Apache-2.0
// Reads the sources of a load (the file, then each override) into a draft, key by key, against the
// rows of the schema. A later source replaces an earlier one. Errors go to the draft's diagnostics.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/load/config_load_draft.h"

namespace isthmus::config {

class Reader {
 public:
  /// `draft` must outlive the reader.
  explicit Reader(Draft& draft) : draft_(draft) {}

  /// Parses the file's text and reads every key of the text and of `overrides`. RETURNS: false when
  /// the text is not TOML; the error is noted.
  bool read(std::string_view text, const Overrides& overrides);
  // The steps of `read`, for a file that is assembled from parts.
  void read_table(const SourceTable& table);
  /// `source`: the number of the override among the diagnostics' sources.
  void read_override(const Override& given, int source);
  /// Replaces the value of one key by `value`.
  void replace(const std::string& name, const SourceValue& value);
  /// Called after the last key, so that a hint can name the keys of the chosen method.
  void explain_unknown_keys();

 private:
  void read_top(const SourceEntry& entry);
  void read_section(std::string_view section, const SourceValue& value, const Place& key_place);
  void read_key(const std::string& given_name, const SourceEntry& entry, bool replaces = false);
  /// A key or value of an earlier version (gone_rows). RETURNS: false for any other key.
  bool read_gone(const std::string& name, const SourceEntry& entry, bool replaces);
  /// An array of tables, with the given keys and the place of each element.
  template <typename Target>
  void read_elements(const SourceEntry& entry, std::span<const KeyRow<Target>> rows,
                     std::vector<Target>& targets, GivenElements& given);
  template <typename Target>
  void read_element(const SourceValue& element, std::string_view section,
                    std::span<const KeyRow<Target>> rows, Target& target, GivenKeys& element_keys);
  void unknown_key(const std::string& name, const Place& key_place);
  void unknown_section(const std::string& name, const Place& key_place);

  Draft& draft_;
  std::vector<std::pair<std::string, Place>> unknown_;
};

}  // namespace isthmus::config
