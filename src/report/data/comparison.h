// SPDX-License-Identifier: Apache-2.0
// The results of a comparison's cells: final losses, paired differences from the baseline, and the
// cost of each variant up to the target. Pure functions of the cells; the terminal's table,
// summary.json and the page all show these numbers.
//
// A variant's runs are compared with the baseline's runs of the same seeds (same initial weights,
// same data order). With k variants besides the baseline every test uses the level (1 - confidence)
// / k, so that all verdicts hold jointly at `confidence`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/data/cells.h"
#include "report/data/retimed.h"
#include "report/data/statistics.h"

namespace isthmus::report {

/// Fewer pairs give no result; fewer than the next number give no claim.
inline constexpr int kFewestPairs = 6;
inline constexpr int kPairsOfAClaim = 8;
inline constexpr double kPower = 0.8;  // of the detectable difference

struct ComparisonRules {
  std::string name;
  std::size_t baseline = 0;  // place among the variants
  double confidence = 0.95;
  double margin = 0.01;                // share of the baseline's loss above the floor
  double floor = 0;                    // entropy of the data, if known; else 0
  std::optional<double> target;        // a loss; absent: relative
  std::size_t target_relative_to = 0;  // a variant
  double target_factor = 1.01;         // times that variant's mean loss above the floor
  std::int64_t budget_steps = 0;       // a later target counts as missed; 0: no bound
  double budget_s = 0;
  bool quick = false;  // shortened: no result
};

/// Tuning chose the largest (or smallest) value that it tried for this key.
struct TuningEdge {
  std::string key;
  std::string value;
  bool largest = false;
};

struct ComparedVariant {
  std::string name;
  std::string method;
  std::vector<std::pair<std::string, std::string>> tuned;  // chosen; empty: not tuned
  int trials = 0;
  double tuning_loss = 0;
  std::vector<TuningEdge> edges;
  std::vector<CellResult> runs;  // by seed, in the order of the seeds, which all variants share
};

/// Paired differences from the baseline, variant minus baseline.
struct AgainstBaseline {
  Spread difference;
  Interval interval;           // at level (1 - confidence) / k, for k joint tests
  double p = 1;                // of no difference, Bonferroni-corrected: times k, at most 1
  double equivalence_p = 1;    // of a difference as large as the margin, likewise
  double detectable = 0;       // difference found with chance kPower; infinite: too few pairs
  bool apart = false;          // a difference is shown
  bool within_margin = false;  // equivalence is shown
};

/// The cost up to the target, medians over the runs. A run that missed it counts as infinite.
struct ToTarget {
  int runs = 0;
  int reached = 0;
  double steps = 0;
  double payload_bytes = 0;  // of the site that sent most
  double wire_bytes = 0;
  double clock_s = 0;  // NaN without a simulated clock
};

struct VariantResult {
  int finished = 0;  // runs that did not fail
  int failed = 0;
  std::string cause;                       // of the first failure
  Spread final_loss;                       // of the finished runs
  Interval interval;                       // of their mean, at `confidence`
  std::optional<AgainstBaseline> against;  // empty for the baseline, and if a run failed
  ToTarget to_target;
  std::string verdict;   // a sentence or two
  std::string no_claim;  // why the verdict is no claim; empty for the baseline and for claims
};

struct Comparison {
  ComparisonRules rules;
  std::vector<ComparedVariant> variants;
  std::vector<VariantResult> results;  // by variant
  double margin = 0;                   // in nats; 0 if the baseline has no loss
  std::optional<double> target;        // nothing if the variant that it is relative to has no loss
  std::int64_t eval_every = 0;         // steps between evaluations: the resolution of the target
  OtherLinks other_links;              // filled later by a caller that can re-time runs
  std::vector<std::string> notes;      // limits of the verdicts
};

/// REQUIRES: every variant has a run for each seed, in the same order.
[[nodiscard]] Comparison compare_variants(ComparisonRules rules,
                                          std::vector<ComparedVariant> variants);

/// The point at which a run reaches `target`, by linear interpolation between evaluations; if the
/// first evaluation is already there, that one. RETURNS: nothing if the run misses it, or reaches
/// it only after the budget.
[[nodiscard]] std::optional<CellEval> reaching(const CellResult& run, double target,
                                               const ComparisonRules& rules);

/// The cost of `runs` up to `target`, medians over them. A member of `rules.budget_*` that is 0 is
/// no bound.
[[nodiscard]] ToTarget way_to_target(const std::vector<CellResult>& runs, double target,
                                     const ComparisonRules& rules);

/// "inner.lr = 0.004, outer.lr = 0.7"; "not tuned".
[[nodiscard]] std::string tuned_text(const ComparedVariant& variant);

/// Fills verdicts, reasons and notes from the numbers; the last step of compare_variants.
void judge(Comparison& comparison);

}  // namespace isthmus::report
