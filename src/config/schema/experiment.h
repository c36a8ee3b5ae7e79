// SPDX-License-Identifier: Apache-2.0
// A comparison: one file with a run (the base), variants that change it, seeds, a tuning grid and a
// target. Its sections [compare], [target], [budget] and [variant.NAME] are added to those of a run
// file; the run file's schema checks every variant, with places in this file.
//
//   A variant's keys replace the base's, key by key; [[site]] and [[link]] as a whole. A variant
//   that names outer.method begins a new [outer]: another method's keys would be meaningless.
//   Later layers win: base, variant, --set, then the settings of one cell (seed, tuned values).
//
// Immutable once loaded; any thread may read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// [compare], [target] and [budget] of the file.
struct ExperimentSettings {
  std::string baseline;                                     // empty: the first variant
  std::vector<std::int64_t> seeds{1, 2, 3, 4, 5, 6, 7, 8};  // of the runs that are compared
  double confidence = 0.95;  // of all intervals against the baseline together
  double margin = 0.01;      // equivalence: share of the baseline's loss above the known floor
  bool checkpoints = false;  // keep each run's last checkpoint
  std::vector<std::string> links;    // "1Gbit/s,30ms": more links to report times for
  std::int64_t tune_trials = 0;      // 0: the number of grid points
  std::int64_t tune_follow_ups = 2;  // trials after the grid, beyond its edge or inside it
  std::int64_t tune_seed = 0;        // the first of the trials; none of `seeds`
  std::int64_t tune_seeds = 2;       // trials of a point: its loss is their mean
  std::string target_metric = "val_loss";
  std::optional<double> target_value;  // absent: relative
  std::string target_relative_to;      // a variant; empty: the baseline
  double target_factor = 1.01;         // times that variant's mean loss above the known floor
  std::int64_t budget_steps = 0;       // a target reached later counts as missed; 0: no bound
  Duration budget_time{0};             // the same on the simulated clock

  /// tune_seed, and tune_seeds - 1 others, none of `seeds`: first of those that trials on record
  /// have (`tried`, if tune_seed is among them), then tune_seed + 1,000,000 k. So further reported
  /// seeds, or further trials, leave the former trials in place.
  [[nodiscard]] std::vector<std::int64_t> seeds_of_trials(
      std::span<const std::int64_t> tried = {}) const;
};

/// A value for one key of a run file, and its origin.
struct Setting {
  std::string key;     // "inner.lr"
  std::string value;   // as TOML
  std::string origin;  // "seed 3 of the comparison"; for a value of the file: line and column
  int line = 0, column = 0, width = 1;
};

/// One dimension of a tuning grid: a key and the values to try.
struct TuneAxis {
  std::string key;
  std::vector<Setting> values;
};

struct ExperimentVariant {
  std::string name;
  std::vector<TuneAxis> space;  // empty: nothing is tuned
};

class Experiment {
 public:
  /// Reads and checks the whole file: every variant at every point of its grid.
  /// THROWS: ConfigErrors with all diagnostics; SystemError when the file cannot be read.
  [[nodiscard]] static Experiment load(const std::filesystem::path& file,
                                       const Overrides& overrides, const SchemaContext& context);
  /// The same for a text; `name` stands for the file.
  [[nodiscard]] static Experiment load_text(std::string_view text,
                                            const std::filesystem::path& name,
                                            const Overrides& overrides,
                                            const SchemaContext& context);
  ~Experiment();
  Experiment(Experiment&&) noexcept;
  Experiment& operator=(Experiment&&) noexcept;

  [[nodiscard]] const std::filesystem::path& file() const;
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const ExperimentSettings& settings() const;
  /// In the order of the file, including the baseline.
  [[nodiscard]] const std::vector<ExperimentVariant>& variants() const;
  /// Place of the baseline in `variants`.
  [[nodiscard]] std::size_t baseline() const;

  /// The run file of one cell: variant `variant` with `settings` applied, as if it were a separate
  /// file (`Config::text` is that file). THROWS: ConfigErrors when a setting makes it invalid.
  [[nodiscard]] Config config(std::size_t variant, std::span<const Setting> settings) const;

  struct Parts;  // the parts, for its loader

 private:
  explicit Experiment(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Whether a section's name belongs to a comparison rather than to a run.
[[nodiscard]] bool is_experiment_section(std::string_view name);

}  // namespace isthmus
