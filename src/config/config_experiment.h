// SPDX-License-Identifier: Apache-2.0
// The parts of a loaded comparison; internal to config_experiment*.cpp.
#pragma once

#include <string>
#include <vector>

#include "config/load/config_load_draft.h"
#include "config/schema/experiment.h"

namespace isthmus {

struct Experiment::Parts {
  std::filesystem::path file;
  std::string text;
  Overrides overrides;
  SchemaContext context;
  ExperimentSettings settings;
  std::vector<ExperimentVariant> variants;
  std::size_t baseline = 0;
  /// By variant: the base with values of the variant's keys in place of its own.
  std::vector<config::SourceTable> laid;
  /// By variant: the overrides that apply to it, and their text for its run file.
  struct OfVariant {
    std::size_t index;  // in `overrides`
    std::string text;   // "outer.H=50"
  };
  std::vector<std::vector<OfVariant>> overrides_of;

  /// The load of one cell's run file, complete and checked; its diagnostics may hold errors.
  [[nodiscard]] config::Draft load(std::size_t variant, std::span<const Setting> cell) const;
};

namespace config {

/// `base` with the values of `overlay` in place of its own: section by section, key by key.
[[nodiscard]] SourceTable laid_over(const SourceTable& base, const SourceTable& overlay);

/// Values of a grid as settings; reports keys that cannot be tuned.
[[nodiscard]] std::vector<TuneAxis> read_space(const SourceValue& space, Diagnostics& diagnostics);

}  // namespace config
}  // namespace isthmus
