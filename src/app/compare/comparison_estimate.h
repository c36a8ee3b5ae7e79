// SPDX-License-Identifier: Apache-2.0
// The cost of a comparison, before it runs: its cells one by one, bytes, simulated and real time.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "app/compare/cell_runner.h"
#include "app/compare/comparison_plan.h"
#include "app/train/run_estimate.h"

namespace isthmus::app {

struct ComparisonEstimate {
  struct Variant {
    std::string name;
    RunEstimate run;  // of one of its runs
  };
  std::vector<Variant> variants;  // empty if a program trains, whose model is unknown
  std::vector<Cell> cells;        // known beforehand: follow-ups depend on the grids
  std::vector<bool> done;         // by cell: its result is in the folder
  std::size_t total = 0;          // cells, including follow-ups
  double flops_per_s = 0;         // of one core, measured now; 0: a program trains
  double cost = 0;  // of the remaining cells, in floating-point operations (a program: steps)
  JobLimit jobs;
  [[nodiscard]] bool knows_time() const { return flops_per_s > 0; }
  /// REQUIRES: knows_time(). Remaining real time, with concurrent cells.
  [[nodiscard]] double wall_s() const { return cost / flops_per_s / jobs.jobs; }
};

/// Estimates every variant and measures a training step. `known`: keys of finished cells. THROWS:
/// as estimate_run.
[[nodiscard]] ComparisonEstimate estimate_comparison(const Experiment& experiment,
                                                     const ComparisonPlan& plan,
                                                     const std::set<std::string>& known,
                                                     const JobLimit& jobs);

[[nodiscard]] std::string render_estimate(const Experiment& experiment, const ComparisonPlan& plan,
                                          const ComparisonEstimate& estimate,
                                          const Terminal& terminal);
[[nodiscard]] std::string estimate_json(const Experiment& experiment,
                                        const ComparisonEstimate& estimate);

}  // namespace isthmus::app
