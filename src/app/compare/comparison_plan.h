// SPDX-License-Identifier: Apache-2.0
// The cells of a comparison and the order in which they may run: for every variant its grid, then
// its follow-up trials one after another, then the runs to compare, with the rates found. Variants
// do not wait for one another. A cell's result does not depend on the order of cells. One thread at
// a time; trains nothing and uses no disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/compare/tuning.h"
#include "config/schema/experiment.h"
#include "report/data/comparison.h"

namespace isthmus::app {

/// One training run of a comparison.
struct Cell {
  std::size_t variant = 0;
  report::CellStage stage = report::CellStage::kSeed;
  std::int64_t seed = 0;
  std::size_t number = 0;  // within its stage
  Point point;             // tuned values; empty when nothing is tuned
  Config config;
  bool simulated = false;
  std::string configuration;  // digest of its configuration
  std::string key;            // digest of everything that can change its result
  double cost = 0;            // approximate number of floating-point operations
  std::string directory;      // from the comparison's folder: "ddp/seed-1", "ddp/tune-03"
};

struct PlanOptions {
  bool quick = false;             // three seeds, a quarter of the length
  std::vector<std::string> only;  // variants beside the baseline; empty: all
  /// Seeds of trials on record: they are tried on again.
  std::vector<std::int64_t> tried = {};
  /// The digest of a cell's data, weights and kernels, in addition to that of its configuration.
  std::function<std::string(const Config&)> inputs;
};

/// Whether a run of this configuration has a simulated clock.
[[nodiscard]] bool runs_simulated(const Config& config);

class ComparisonPlan {
 public:
  /// `experiment` is borrowed. THROWS: ConfigError when variants cannot be compared (some have a
  /// simulated clock, some not; --only names none).
  ComparisonPlan(const Experiment& experiment, PlanOptions options);

  /// Indices in the experiment of the variants that take part, including the baseline.
  [[nodiscard]] const std::vector<std::size_t>& variants() const { return members_; }
  [[nodiscard]] std::size_t baseline() const { return baseline_; }  // place in `variants()`
  [[nodiscard]] const std::vector<std::int64_t>& seeds() const { return seeds_; }
  [[nodiscard]] bool tuned() const { return trials_ > 0; }
  /// Of each variant: points of the grid, and follow-ups at most; each is tried on every one of
  /// `trial_seeds`.
  [[nodiscard]] std::size_t trials() const { return trials_; }
  [[nodiscard]] std::size_t follow_ups() const { return follow_ups_; }
  [[nodiscard]] const std::vector<std::int64_t>& trial_seeds() const { return trial_seeds_; }

  /// Every cell that is known before the first run: grids, and runs at each grid's first point. For
  /// estimates; the runs' rates will differ.
  [[nodiscard]] std::vector<Cell> outline() const;
  /// Number of cells, if all follow-ups take place.
  [[nodiscard]] std::size_t total() const;

  /// A cell that may run now; nothing while there is none.
  [[nodiscard]] std::optional<Cell> next();
  /// The result of a cell from `next`.
  void finish(const Cell& cell, report::CellResult result);
  /// Whether no cell is left to return or to wait for.
  [[nodiscard]] bool done() const;
  /// Cells not yet finished, and their cost.
  [[nodiscard]] std::size_t remaining() const { return remaining_; }
  [[nodiscard]] double remaining_cost() const;
  [[nodiscard]] double total_cost() const;

  /// REQUIRES: done(). Every variant with its runs, in the order of `variants()`.
  [[nodiscard]] std::vector<report::ComparedVariant> results() const;
  /// REQUIRES: done(). The configuration of a variant's first run, with the rates found.
  [[nodiscard]] Config config_of_run(std::size_t member) const;

 private:
  /// A point that is tried, and what was found there, by seed of the trials.
  struct Tried {
    Point point;
    std::vector<std::optional<double>> losses;
  };
  struct State {
    std::vector<Point> grid;
    std::vector<Tried> trials;  // by number, grid first
    std::size_t begun = 0;      // cells of trials handed out, a point's seeds one after another
    std::size_t ended = 0;
    std::size_t follow_ups_left = 0;
    bool rates_known = false;
    Point chosen;
    double tuning_loss = 0;
    std::vector<GridEdge> edges;
    std::vector<std::optional<report::CellResult>> runs;  // by seed
    std::size_t runs_begun = 0;
    double cost_of_trial = 0, cost_of_run = 0;
  };
  /// number: of the cell; every point has as many as there are seeds of trials.
  [[nodiscard]] Cell make_trial(std::size_t member, const Point& point, std::size_t number) const;
  [[nodiscard]] Cell make_run(std::size_t member, const Point& point, std::size_t number) const;
  [[nodiscard]] Cell make_cell(Cell cell, const Point& point) const;
  [[noreturn]] void refuse_only(const std::vector<std::string>& unknown) const;
  [[nodiscard]] std::optional<Cell> next_trial(std::size_t member);
  void settle_tuning(std::size_t member);
  [[nodiscard]] bool allowed(std::size_t member, const Point& point) const;
  [[nodiscard]] static std::vector<Trial> trials_of(const State& state);

  const Experiment& experiment_;
  PlanOptions options_;
  std::vector<std::size_t> members_;
  std::size_t baseline_ = 0;
  std::vector<std::int64_t> seeds_;
  std::size_t trials_ = 0;
  std::size_t follow_ups_ = 0;
  std::vector<std::int64_t> trial_seeds_;
  std::vector<State> states_;  // by member
  std::size_t remaining_ = 0;
};

}  // namespace isthmus::app
