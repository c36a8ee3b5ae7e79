// SPDX-License-Identifier: Apache-2.0
#include "report/data/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace isthmus::report {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<double> final_losses(const ComparedVariant& variant) {
  std::vector<double> losses;
  for (const CellResult& run : variant.runs) {
    if (run.status == CellStatus::kOk) {
      losses.push_back(run.final_loss());
    }
  }
  return losses;
}

AgainstBaseline compare_pairs(const ComparedVariant& baseline, const ComparedVariant& variant,
                              const ComparisonRules& rules, double margin, int compared) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < variant.runs.size(); ++i) {
    ISTHMUS_CHECK(variant.runs[i].seed == baseline.runs[i].seed, variant.runs[i].seed);
    differences.push_back(variant.runs[i].final_loss() - baseline.runs[i].final_loss());
  }
  const double level = (1 - rules.confidence) / compared;
  AgainstBaseline against{.difference = spread_of(differences)};
  const auto corrected = [compared](double p) { return std::min(1.0, p * compared); };
  against.interval = mean_interval(against.difference, 1 - level);
  against.p = corrected(no_difference_p(against.difference));
  against.equivalence_p = corrected(equivalence_p(against.difference, margin));
  const bool enough = against.difference.n >= kFewestPairs;
  // For two pairs at a strict level the noncentral t cannot be computed.
  against.detectable = enough ? detectable_difference(against.difference.deviation,
                                                      against.difference.n, level, kPower)
                              : std::numeric_limits<double>::infinity();
  against.apart = enough && against.p < 1 - rules.confidence;
  against.within_margin = enough && against.equivalence_p < 1 - rules.confidence;
  return against;
}

/// The loss that counts as `share` more than `loss`, of which the floor is no part.
double above_floor(double loss, double floor, double factor) {
  return floor + (loss - floor) * factor;
}

/// Steps between evaluations, the widest gap of any run.
std::int64_t resolution_of(const std::vector<ComparedVariant>& variants) {
  std::int64_t widest = 0;
  for (const ComparedVariant& variant : variants) {
    for (const CellResult& run : variant.runs) {
      std::int64_t before = 0;
      for (const CellEval& eval : run.evals) {
        widest = std::max(widest, eval.step - before);
        before = eval.step;
      }
    }
  }
  return widest;
}

CellEval between(const CellEval& a, const CellEval& b, double share) {
  const auto mix = [share](double from, double to) { return from + (to - from) * share; };
  return {.step = std::llround(mix(static_cast<double>(a.step), static_cast<double>(b.step))),
          .clock_s = mix(a.clock_s, b.clock_s),
          .payload_bytes = mix(a.payload_bytes, b.payload_bytes),
          .wire_bytes = mix(a.wire_bytes, b.wire_bytes)};
}

}  // namespace

std::optional<CellEval> reaching(const CellResult& run, double target,
                                 const ComparisonRules& rules) {
  const CellEval* before = nullptr;
  for (const CellEval& eval : run.evals) {
    if (eval.loss <= target) {
      CellEval there = eval;
      if (before != nullptr) {
        there = between(*before, eval, (before->loss - target) / (before->loss - eval.loss));
      }
      there.loss = target;
      const bool late_step = rules.budget_steps > 0 && there.step > rules.budget_steps;
      const bool late_clock = rules.budget_s > 0 && there.clock_s > rules.budget_s;
      return late_step || late_clock ? std::nullopt : std::optional(there);
    }
    before = &eval;
  }
  return std::nullopt;
}

ToTarget way_to_target(const std::vector<CellResult>& runs, double target,
                       const ComparisonRules& rules) {
  ToTarget way{.runs = static_cast<int>(runs.size())};
  std::vector<double> steps;
  std::vector<double> payload;
  std::vector<double> wire;
  std::vector<double> clock;
  for (const CellResult& run : runs) {
    const auto there = reaching(run, target, rules);
    way.reached += there ? 1 : 0;
    steps.push_back(there ? static_cast<double>(there->step) : kNever);
    payload.push_back(there ? there->payload_bytes : kNever);
    wire.push_back(there ? there->wire_bytes : kNever);
    clock.push_back(there ? there->clock_s : kNever);
  }
  const bool timed =
      std::any_of(runs.begin(), runs.end(), [](const CellResult& run) { return run.simulated; });
  way.steps = median_of(steps);
  way.payload_bytes = median_of(payload);
  way.wire_bytes = median_of(wire);
  way.clock_s = timed ? median_of(clock) : std::numeric_limits<double>::quiet_NaN();
  return way;
}

std::string tuned_text(const ComparedVariant& variant) {
  std::string text;
  for (const auto& [key, value] : variant.tuned) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  }
  return text.empty() ? "not tuned" : text;
}

Comparison compare_variants(ComparisonRules rules, std::vector<ComparedVariant> variants) {
  ISTHMUS_CHECK(rules.baseline < variants.size(), rules.baseline, variants.size());
  Comparison comparison{.rules = std::move(rules), .variants = std::move(variants)};
  const ComparisonRules& by = comparison.rules;
  comparison.eval_every = resolution_of(comparison.variants);
  for (const ComparedVariant& variant : comparison.variants) {
    VariantResult result;
    result.final_loss = spread_of(final_losses(variant));
    result.interval = mean_interval(result.final_loss, by.confidence);
    result.finished = result.final_loss.n;
    for (const CellResult& run : variant.runs) {
      if (run.status == CellStatus::kFailed && result.failed++ == 0) {
        result.cause = fmt::format("seed {}: {}", run.seed, run.cause);
      }
    }
    comparison.results.push_back(result);
  }
  const VariantResult& baseline = comparison.results[by.baseline];
  const bool has_baseline = baseline.finished > 0 && baseline.failed == 0;
  if (has_baseline) {
    comparison.margin = by.margin * (baseline.final_loss.mean - by.floor);
  }
  comparison.target = by.target;
  const VariantResult& reference = comparison.results[by.target_relative_to];
  if (!by.target && reference.finished > 0) {
    comparison.target = above_floor(reference.final_loss.mean, by.floor, by.target_factor);
  }
  const int compared = std::max(1, static_cast<int>(comparison.variants.size()) - 1);
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    VariantResult& result = comparison.results[v];
    const bool pairs = has_baseline && result.failed == 0 && comparison.margin > 0;
    if (v != by.baseline && pairs) {
      result.against = compare_pairs(comparison.variants[by.baseline], comparison.variants[v], by,
                                     comparison.margin, compared);
    }
    if (comparison.target) {
      result.to_target = way_to_target(comparison.variants[v].runs, *comparison.target, by);
    }
  }
  judge(comparison);
  return comparison;
}

}  // namespace isthmus::report
