// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_links.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "isthmus/errors.h"
#include "record/build_info.h"

namespace isthmus::app {
namespace {

using report::CellEval;
using report::CellResult;
using report::CellStatus;
using report::RetimedVariant;

double seconds(TimePoint time) { return in_seconds(time.time_since_epoch()); }

std::vector<RecordedEvaluation> recorded(const CellResult& run) {
  std::vector<RecordedEvaluation> evaluations;
  for (const CellEval& eval : run.evals) {
    evaluations.push_back({.step = eval.step,
                           .clock_s = eval.clock_s,
                           .payload_bytes = eval.payload_bytes,
                           .wire_bytes = eval.wire_bytes});
  }
  return evaluations;
}

/// Why the runs differ from their re-timing at their own links; nothing if they are equal.
std::optional<std::string> unlike_runs(const Retimer& retimer,
                                       const std::vector<CellResult>& runs) {
  const std::vector<LinkConfig>& links = retimer.config().links;
  std::optional<RetimedRun> again;
  for (const CellResult& run : runs) {
    if (run.status != CellStatus::kOk) continue;
    if (!again || retimer.seeds_differ(links)) again = retimer.over(links, run.seed);
    const bool ours = run.version.empty() || run.version == program_version();
    if (auto why = differs_from_run(*again, retimer.byte_scale(), recorded(run),
                                    ours ? 0 : kOtherVersionsTolerance)) {
      return why;
    }
  }
  return std::nullopt;
}

/// The clock at each evaluation, step by step; too long a wait would have ended the run.
std::vector<double> clock_at(const RetimedRun& again, const std::vector<CellEval>& evals) {
  std::vector<double> clock;
  for (const CellEval& eval : evals) {
    clock.push_back(seconds(again.steps.at(static_cast<std::size_t>(eval.step) - 1).end));
  }
  return clock;
}

const CellResult* longest(const std::vector<CellResult>& runs) {
  const auto found =
      std::ranges::max_element(runs, {}, [](const CellResult& run) { return run.evals.size(); });
  return found == runs.end() ? nullptr : &*found;
}

/// The clock of each run over `link`, which seeds draw anew.
std::vector<std::vector<double>> clock_by_run(const Retimer& retimer, const LinkConfig& link,
                                              const std::vector<CellResult>& runs) {
  std::vector<std::vector<double>> clocks;
  for (const CellResult& run : runs) {
    clocks.push_back(clock_at(retimer.over({link}, run.seed), run.evals));
  }
  return clocks;
}

/// Of the run that the configuration is of.
std::int64_t seed_of(const Retimer& retimer) {
  return static_cast<std::int64_t>(retimer.config().run.seed);
}

/// Rates at which utilisation is looked at: four to a decade, 1 Mbit/s to 1 Tbit/s.
constexpr int kRates = 25;
double rate_at(int place) { return 1e6 * std::pow(10.0, static_cast<double>(place) / 4); }

/// The run over one link of each rate, at the configuration's own round trip.
std::vector<RetimedVariant::AtRate> by_rate(const Retimer& retimer, Duration patience,
                                            const std::vector<CellEval>& evals) {
  LinkConfig link = parse_link("1Gbit/s,0ms");
  link.rtt = retimer.config().links.front().rtt;
  std::vector<RetimedVariant::AtRate> places;
  for (int i = 0; i < kRates; ++i) {
    link.bits_per_s_up = link.bits_per_s_down = std::round(rate_at(i));
    const RetimedRun again = retimer.over({link}, seed_of(retimer));
    RetimedVariant::AtRate& at = places.emplace_back();
    at.bits_per_s = link.bits_per_s_up;
    at.utilisation = std::numeric_limits<double>::quiet_NaN();
    if (again.too_long || again.longest_wait > patience) continue;
    at.utilisation = again.utilisation();
    at.clock_s = clock_at(again, evals);
    at.end_s = seconds(again.end());
  }
  return places;
}

/// `clock_of`: the clock of run r, by evaluation.
double to_target(const report::Comparison& comparison, std::size_t variant,
                 const std::function<const std::vector<double>&(std::size_t r)>& clock_of) {
  if (!comparison.target) return std::numeric_limits<double>::infinity();
  std::vector<CellResult> runs = comparison.variants[variant].runs;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::vector<CellEval>& evals = runs[r].evals;
    for (std::size_t i = 0; i < evals.size(); ++i) evals[i].clock_s = clock_of(r).at(i);
  }
  report::ComparisonRules rules = comparison.rules;
  rules.budget_s = 0;  // a bound on the clock of the runs' own links
  return report::way_to_target(runs, *comparison.target, rules).clock_s;
}

}  // namespace

void note_own_link(const Config& config, report::OtherLinks& other) {
  if (config.links.empty()) return;
  const LinkConfig& first = config.links.front();
  other.rtt_s = in_seconds(first.rtt);
  const bool as_played = config.links.size() == 1 && first.bits_per_s_up == first.bits_per_s_down &&
                         first.loss == 0 && first.jitter == Duration{0} && first.streams == 1 &&
                         first.congestion == "bbr" && first.trace.empty();
  other.bits_per_s = as_played ? first.bits_per_s_up : 0;
}

RetimedVariant retimed_variant(const Config& config, const std::vector<CellResult>& runs,
                               const std::vector<std::string>& links, RetimedFor use) {
  RetimedVariant variant;
  const CellResult* run = longest(runs);
  if (run == nullptr || run->evals.empty()) {
    variant.obstacle = "no run of it was evaluated";
    return variant;
  }
  if (const auto why = retiming_obstacle(config)) {
    variant.obstacle = *why;
    return variant;
  }
  const Retimer retimer(config);
  if (const auto why = unlike_runs(retimer, runs)) {
    variant.obstacle = *why;
    return variant;
  }
  const Duration patience = round_patience(config, true);
  for (const std::string& link : links) {
    const LinkConfig parsed = parse_link(link);
    const RetimedRun again = retimer.over({parsed}, seed_of(retimer));
    if (again.too_long) {
      variant.obstacle = "over " + link + " it takes longer than clocks of nanoseconds go";
      return variant;
    }
    if (again.longest_wait > patience) {
      variant.obstacle = "over " + link + " a round takes longer than net.patience";
    }
    variant.clock_s.push_back(clock_at(again, run->evals));
    if (retimer.seeds_differ({parsed})) {
      variant.clock_by_run_s.push_back(clock_by_run(retimer, parsed, runs));
    }
    variant.end_s.push_back(seconds(again.end()));
    variant.utilisation.push_back(again.utilisation());
  }
  if (use == RetimedFor::kPage && variant.obstacle.empty()) {
    variant.by_rate = by_rate(retimer, patience, run->evals);
  }
  return variant;
}

report::OtherLinks times_on_links(const report::Comparison& comparison,
                                  const std::vector<std::string>& links,
                                  const std::function<Config(std::size_t variant)>& config_of,
                                  RetimedFor use) {
  report::OtherLinks other{.links = links};
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    RetimedVariant variant;
    try {
      const Config config = config_of(v);
      if (v == comparison.rules.baseline) note_own_link(config, other);
      variant = retimed_variant(config, comparison.variants[v].runs, links, use);
    } catch (const Error& error) {
      variant.obstacle = std::string("its configuration cannot be read: ") + error.what();
    }
    std::vector<double>& times = other.seconds.emplace_back();
    for (std::size_t l = 0; l < links.size(); ++l) {
      const auto clock_of = [&](std::size_t r) -> const std::vector<double>& {
        return variant.clock_by_run_s.empty() ? variant.clock_s[l]
                                              : variant.clock_by_run_s[l].at(r);
      };
      times.push_back(variant.obstacle.empty() ? to_target(comparison, v, clock_of)
                                               : std::numeric_limits<double>::quiet_NaN());
    }
    for (RetimedVariant::AtRate& at : variant.by_rate) {
      if (at.clock_s.empty()) continue;
      at.to_target_s = to_target(
          comparison, v, [&](std::size_t) -> const std::vector<double>& { return at.clock_s; });
    }
    other.variants.push_back(std::move(variant));
  }
  return other;
}

}  // namespace isthmus::app
