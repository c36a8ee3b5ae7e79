// SPDX-License-Identifier: Apache-2.0
// Fills an Experiment's parts from its tables; internal to config_experiment*.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_experiment.h"

namespace isthmus::config {

class ExperimentReader {
 public:
  ExperimentReader(Experiment::Parts& parts, Diagnostics& found)
      : diagnostics(found), parts_(parts) {}

  /// Reads everything except the variants' own run files, which `check_cells` loads.
  void read(const SourceTable& table);

  Diagnostics& diagnostics;

 private:
  struct Variant {
    std::string name;
    Place place;
    SourceTable overlay;
    std::optional<std::vector<TuneAxis>> space;
  };
  struct OneOverride {
    std::string variant;
    Experiment::Parts::OfVariant text;
    Place place;
  };
  void read_section(const std::string& section, const SourceEntry& entry);
  void read_setting(const std::string& name, const SourceEntry& entry);
  void unknown_setting(const std::string& name, const Place& place);
  void read_variants(const SourceEntry& entry);
  void read_own_tune(Variant& variant, const SourceEntry& entry);
  void read_override(std::size_t index);  // of parts_.overrides
  void settle_variants();
  void settle_settings();
  [[nodiscard]] std::optional<std::size_t> index_of(const std::string& name) const;
  void unknown_variant(const std::string& what, const std::string& name, const Place& place);
  [[nodiscard]] Place place_of(std::string_view name) const;

  Experiment::Parts& parts_;
  SourceTable base_;
  std::vector<Variant> variants_;
  std::vector<TuneAxis> space_;  // of [compare.tune], for variants without their own
  std::vector<Experiment::Parts::OfVariant> for_all_;
  std::vector<OneOverride> for_one_;
  std::map<std::string, Place, std::less<>> places_;  // of settings that are given
};

/// Checks every variant at every point of its grid, and that the grids have equal sizes. RETURNS:
/// the errors, each once.
[[nodiscard]] std::vector<Diagnostic> check_cells(const Experiment::Parts& parts);

}  // namespace isthmus::config
