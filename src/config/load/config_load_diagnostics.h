// SPDX-License-Identifier: Apache-2.0
// Collects the errors of one load, with excerpts of their sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config_schema_source.h"

namespace isthmus::config {

class Diagnostics {
 public:
  /// Copies the lines of the text, so the caller may free it. Source 0 is the file.
  Diagnostics(std::string_view text, std::string file_name);

  /// Adds a source without lines; `label` names it ("--set outer.H=50"). RETURNS: its number.
  int add_source(std::string label);

  void add(std::string code, const Place& place, std::string_view message,
           std::string_view hint = {});
  [[nodiscard]] bool empty() const { return found_.empty(); }
  /// "run.toml:12:8", "--set outer.H=50"; "default" for a place without a source.
  [[nodiscard]] std::string where(const Place& place) const;
  /// Returns all errors, in the order of the file, then of the overrides, and removes them.
  [[nodiscard]] std::vector<Diagnostic> take();

 private:
  struct Found {
    Place place;
    Diagnostic diagnostic;
  };
  std::vector<std::string> lines_;
  std::string file_name_;
  std::vector<std::string> labels_;  // of sources 1, 2, ...
  std::vector<Found> found_;
};

}  // namespace isthmus::config
