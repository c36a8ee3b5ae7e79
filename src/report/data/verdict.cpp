// SPDX-License-Identifier: Apache-2.0
// Numbers of a comparison into sentences. A difference that was not shown is never called equality,
// and findings that may change with more seeds, wider grids or longer runs say so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "report/data/comparison.h"

namespace isthmus::report {
namespace {

std::string nats(double value) { return fmt::format("{:.4f}", value); }
std::string percent(double share) { return fmt::format("{:.4g} %", 100 * share); }
std::string p_text(double p) { return p < 0.001 ? "p < 0.001" : fmt::format("p = {:.3f}", p); }

std::string edge_text(const TuningEdge& edge) {
  return fmt::format("{} = {} is the {} tried", edge.key, edge.value,
                     edge.largest ? "largest" : "smallest");
}

/// A variant's need to the target beside the baseline's.
struct Need {
  double ratio = 1;  // above 1: less
  std::string text;  // "2.3x fewer bytes"; empty where both needed as much, or one never came
};

Need need_of(double baseline, double variant, const char* less, const char* more) {
  constexpr double kSame = 1.005;
  if (!std::isfinite(baseline) || !std::isfinite(variant) || variant <= 0 || baseline <= 0) {
    return {};
  }
  const double ratio = baseline / variant;
  const double times = std::max(ratio, 1 / ratio);
  if (times < kSame) {
    return {};
  }
  const char* const words = ratio > 1 ? less : more;
  return {ratio, times >= 1e6  ? fmt::format("{:.3g}x {}", times, words)
                 : times >= 10 ? fmt::format("{:.0f}x {}", times, words)
                               : fmt::format("{:.3g}x {}", times, words)};
}

/// Neither weights nor data followed the seed, as with model.init and data.order = "sequential":
/// its runs have no spread to tell chance by.
bool repeats_one_run(const ComparedVariant& variant) {
  return std::all_of(variant.runs.begin(), variant.runs.end(), [&](const CellResult& run) {
    return run.final_loss() == variant.runs.front().final_loss();
  });
}

class Judge {
 public:
  Judge(const Comparison& comparison, std::size_t variant)
      : comparison_(comparison),
        baseline_(comparison.variants[comparison.rules.baseline]),
        variant_(comparison.variants[variant]),
        base_result_(comparison.results[comparison.rules.baseline]),
        result_(comparison.results[variant]) {}

  [[nodiscard]] std::string verdict() const { return loss_sentence() + target_sentence(); }

  /// The first reason why the verdict is no claim.
  [[nodiscard]] std::string no_claim() const {
    if (comparison_.rules.quick) {
      return "--quick is not a result";
    }
    if (!result_.against) {
      return "not compared";
    }
    const AgainstBaseline& against = *result_.against;
    if (against.difference.n < kPairsOfAClaim) {
      return fmt::format("{} seed{}, a claim rests on {}", against.difference.n,
                         against.difference.n == 1 ? "" : "s", kPairsOfAClaim);
    }
    if (repeats_one_run(baseline_) && repeats_one_run(variant_)) {
      return fmt::format("the seeds change nothing: these {} runs are one run, repeated",
                         against.difference.n);
    }
    if (!against.apart && !against.within_margin) {
      return "neither a difference nor equivalence is shown";
    }
    constexpr int kPairsOfAFineClaim = 12;
    constexpr double kFineMargin = 0.005;
    if (!against.apart && comparison_.rules.margin <= kFineMargin &&
        against.difference.n < kPairsOfAFineClaim) {
      return fmt::format("{} seeds, a margin of {} needs {}", against.difference.n,
                         percent(comparison_.rules.margin), kPairsOfAFineClaim);
    }
    return handicap(against);
  }

 private:
  /// A variant with a handicap may yet do better: a claim that it lost is void, and one of
  /// equivalence is when either has one.
  [[nodiscard]] std::string handicap(const AgainstBaseline& against) const {
    const bool variant_lost = against.apart && against.difference.mean > 0;
    const bool baseline_lost = against.apart && against.difference.mean < 0;
    std::string reason = baseline_lost ? "" : handicap_of(variant_, baseline_);
    if (reason.empty() && !variant_lost) {
      reason = handicap_of(baseline_, variant_);
    }
    return reason;
  }

  [[nodiscard]] static std::string handicap_of(const ComparedVariant& of,
                                               const ComparedVariant& other) {
    if (!of.edges.empty()) {
      return fmt::format("{} may do better beyond its grid: {}", of.name,
                         edge_text(of.edges.front()));
    }
    if (of.trials < other.trials) {
      return fmt::format("{} was tuned with {} trials, {} with {}", of.name, of.trials, other.name,
                         other.trials);
    }
    const std::int64_t tokens = of.runs.front().tokens;
    if (tokens < other.runs.front().tokens) {
      return fmt::format("{} trained on {} tokens, {} on {}", of.name, tokens, other.name,
                         other.runs.front().tokens);
    }
    return "";
  }

  [[nodiscard]] std::string loss_sentence() const {
    if (result_.failed > 0) {
      return fmt::format("failed in {} of {} runs ({}): not compared.", result_.failed,
                         variant_.runs.size(), result_.cause);
    }
    if (!result_.against) {
      return base_result_.failed > 0
                 ? fmt::format("not compared: the baseline failed in {} of {} runs ({}).",
                               base_result_.failed, baseline_.runs.size(), base_result_.cause)
                 : "not compared: the baseline's mean loss is not above the entropy, so there is "
                   "no "
                   "margin.";
    }
    const AgainstBaseline& against = *result_.against;
    if (against.difference.n < kFewestPairs) {
      return fmt::format("too few seeds to tell: {}, at least {} are needed.", against.difference.n,
                         kFewestPairs);
    }
    if (against.difference.mean == 0 && against.difference.deviation == 0) {
      return fmt::format(
          "the losses of {} to the last digit in every run: what differs between the two changes "
          "nothing here.",
          baseline_.name);
    }
    const std::string interval =
        fmt::format("{:+.4f} to {:+.4f}", against.interval.low, against.interval.high);
    const std::string margin = nats(comparison_.margin);
    if (against.apart) {
      const bool lower = against.difference.mean < 0;
      const bool beyond = lower ? against.interval.high < -comparison_.margin
                                : against.interval.low > comparison_.margin;
      return fmt::format("final loss {} than that of {} by {} ({}; {}), {} the margin of {}.",
                         lower ? "lower" : "higher", baseline_.name,
                         nats(std::abs(against.difference.mean)), interval, p_text(against.p),
                         against.within_margin ? "within"
                         : beyond              ? "beyond"
                                               : "not shown to be within",
                         margin);
    }
    if (against.within_margin) {
      return fmt::format("no difference from {} shown ({}); equivalent within {} ({}).",
                         baseline_.name, interval, margin, p_text(against.equivalence_p));
    }
    return fmt::format(
        "no difference from {} shown ({}), nor equivalence within {}: with this spread {} seeds "
        "find differences of {} and more ({:.0f} % power).",
        baseline_.name, interval, margin, against.difference.n, nats(against.detectable),
        100 * kPower);
  }

  [[nodiscard]] std::string target_sentence() const {
    const ToTarget& way = result_.to_target;
    const ToTarget& base = base_result_.to_target;
    if (way.runs == 0) {
      return "";
    }
    if (way.reached < way.runs) {
      return fmt::format(" Missed the target in {} of {} runs.", way.runs - way.reached, way.runs);
    }
    // Higher costs are told like lower ones: a reader of half the sentence would be misled.
    const Need bytes = need_of(base.wire_bytes, way.wire_bytes, "fewer bytes", "more bytes");
    const Need time =
        need_of(base.clock_s, way.clock_s, "less simulated time", "more simulated time");
    std::string text = bytes.text;
    if (!text.empty() && !time.text.empty()) {
      text += (bytes.ratio > 1) == (time.ratio > 1) ? " and " : " but ";
    }
    text += time.text;
    const std::string missed =
        base.reached < base.runs
            ? fmt::format(", which missed it in {} of {} runs", base.runs - base.reached, base.runs)
            : "";
    return text.empty()
               ? " Reached the target in every run."
               : fmt::format(" To the target: {} than {}{}.", text, baseline_.name, missed);
  }

  const Comparison& comparison_;
  const ComparedVariant& baseline_;
  const ComparedVariant& variant_;
  const VariantResult& base_result_;
  const VariantResult& result_;
};

void note_seeds(const Comparison& comparison, std::vector<std::string>& notes) {
  const auto seeds = static_cast<int>(comparison.variants.front().runs.size());
  if (seeds < kPairsOfAClaim) {
    notes.push_back(fmt::format(
        "{} seed{}: {}", seeds, seeds == 1 ? "" : "s",
        seeds < kFewestPairs ? "too few to tell variants apart" : "a claim rests on 8"));
  }
}

void note_tuning(const Comparison& comparison, std::vector<std::string>& notes) {
  const bool tuned = !comparison.variants.front().tuned.empty();
  if (!tuned) {
    notes.emplace_back(
        "nothing was tuned: the verdicts hold for the rates in the file and may turn with others");
    return;
  }
  const auto [fewest, most] = std::minmax_element(
      comparison.variants.begin(), comparison.variants.end(),
      [](const ComparedVariant& a, const ComparedVariant& b) { return a.trials < b.trials; });
  if (fewest->trials < most->trials) {
    notes.push_back(fmt::format("unlike tuning: {} had {} trials, {} had {}", fewest->name,
                                fewest->trials, most->name, most->trials));
  }
  for (const ComparedVariant& variant : comparison.variants) {
    for (const auto& point : variant.passed_over) {
      notes.push_back(fmt::format(
          "{}: {} was passed over in tuning, since its losses spread over more than four times as "
          "much between seeds as the middle point's",
          variant.name, tuned_text({.tuned = point})));
    }
    for (const TuningEdge& edge : variant.edges) {
      notes.push_back(
          fmt::format("{}: edge of the grid, {}; widen the space", variant.name, edge_text(edge)));
    }
  }
}

/// A baseline at the edge of stability: every difference from it has its spread.
void note_spread(const Comparison& comparison, std::vector<std::string>& notes) {
  constexpr double kSeveral = 3;
  const std::size_t baseline = comparison.rules.baseline;
  const Spread& base = comparison.results[baseline].final_loss;
  std::vector<double> others;
  for (std::size_t v = 0; v < comparison.results.size(); ++v) {
    const Spread& own = comparison.results[v].final_loss;
    if (v != baseline && own.n >= kFewestPairs) others.push_back(own.deviation);
  }
  if (base.n < kFewestPairs || others.empty()) return;
  const double usual = median_of(others);
  if (usual <= 0 || base.deviation <= kSeveral * usual) return;
  notes.push_back(fmt::format(
      "the baseline's losses spread {:.1f} times as much over the seeds ({}: {}) as those of the "
      "others ({}): its rates may be at the edge of stability, and its spread hides differences; "
      "tune "
      "it on more seeds (compare.tune.seeds) or on a finer grid",
      base.deviation / usual, comparison.variants[baseline].name, nats(base.deviation),
      nats(usual)));
}

/// Settings that should be the same for all variants and are not.
void note_differences(const Comparison& comparison, std::vector<std::string>& notes) {
  std::map<std::size_t, std::set<std::int64_t>> tokens;  // by seed: tokens of conversations that
                                                         // are trained on differs with the samples
  std::set<std::int64_t> parameters;
  std::set<std::string> versions;
  for (const ComparedVariant& variant : comparison.variants) {
    for (std::size_t seed = 0; seed < variant.runs.size(); ++seed) {
      const CellResult& run = variant.runs[seed];
      versions.insert(run.version);
      if (run.status == CellStatus::kOk) {
        tokens[seed].insert(run.tokens);
        parameters.insert(run.parameters);
      }
    }
  }
  const auto unlike =
      std::ranges::find_if(tokens, [](const auto& of_seed) { return of_seed.second.size() > 1; });
  if (unlike != tokens.end()) {
    notes.push_back(fmt::format("runs differ in length: {} to {} tokens", *unlike->second.begin(),
                                *unlike->second.rbegin()));
  }
  if (parameters.size() > 1) {
    notes.push_back(fmt::format("models differ: {} to {} parameters", *parameters.begin(),
                                *parameters.rbegin()));
  }
  if (versions.size() > 1) {
    notes.push_back(fmt::format("cells were made by {} builds of the program", versions.size()));
  }
}

}  // namespace

void judge(Comparison& comparison) {
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    if (v != comparison.rules.baseline) {
      const Judge judge(comparison, v);
      comparison.results[v].verdict = judge.verdict();
      comparison.results[v].no_claim = judge.no_claim();
    }
  }
  note_seeds(comparison, comparison.notes);
  note_tuning(comparison, comparison.notes);
  note_spread(comparison, comparison.notes);
  note_differences(comparison, comparison.notes);
}

}  // namespace isthmus::report
