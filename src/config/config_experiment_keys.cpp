// SPDX-License-Identifier: Apache-2.0
// The keys of a comparison beside those of a run.
#include <array>

#include "config/schema/config_schema.h"

namespace isthmus::config {
namespace {

using S = ExperimentSettings;

/// The grid is no value of one field; its loader reads it.
constexpr Field<S> kSpaceField = {[](S&, const Value&) {}, [](const S&) { return Value{}; }};
/// "8" where the seeds are 1 to 8, else the list.
constexpr Field<S> kSeedsField = {[](S& settings, const Value& value) {
                                    settings.seeds = std::get<std::vector<std::int64_t>>(value);
                                  },
                                  [](const S& settings) -> Value {
                                    for (std::size_t i = 0; i < settings.seeds.size(); ++i) {
                                      if (settings.seeds[i] != static_cast<std::int64_t>(i) + 1) {
                                        return settings.seeds;
                                      }
                                    }
                                    return static_cast<std::int64_t>(settings.seeds.size());
                                  }};

// clang-format off
constexpr KeyRow<S> kExperimentRows[] = {
    {"compare.baseline", Type::kText, {}, "", field<&S::baseline>(),
     "The variant that the others are compared with. Absent: the first.", "\"ddp\""},
    {"compare.seeds", Type::kSeeds, at_least(0, 9.2e18), "", kSeedsField,
     "How many seeds (1, 2, ...), or which; the same for every variant, so differences are paired. A claim rests on 8, on 12 where the margin is 0.5% or less.",
     "8"},
    {"compare.confidence", Type::kFraction, Range{0.5, 1, false, true}, "", field<&S::confidence>(),
     "Of all intervals against the baseline together: with k of them each has 1 - (1 - confidence) / k (Bonferroni).",
     "0.95"},
    {"compare.margin", Type::kFraction, Range{0, 1, true, true}, "", field<&S::margin>(),
     "Largest difference that counts as equivalent, as a share of the baseline's loss (above the entropy, where the data's is known).",
     "\"1%\""},
    {"compare.checkpoints", Type::kBool, {}, "", field<&S::checkpoints>(),
     "Keep the last checkpoint of every run.", "false"},
    {"compare.links", Type::kTexts, {}, "", field<&S::links>(),
     "Other links (rate, round trip, loss) to tell the time to the target for: finished runs' clocks are played again there.",
     "[\"100Mbit/s,80ms\", \"1Gbit/s,30ms\"]"},
    {"compare.tune.space", Type::kSpace, {}, "", kSpaceField,
     "The grid: for each key the values to try. A variant may have a space of its own, [variant.NAME.tune], of as many points.",
     "{ \"inner.lr\" = [2e-3, 4e-3, 8e-3] }"},
    {"compare.tune.trials", Type::kInteger, at_least(1, 100000), "", field<&S::tune_trials>(),
     "Points of every variant's grid: the same for all. Absent: those of the space.", "6"},
    {"compare.tune.follow_ups", Type::kInteger, at_least(0, 1000), "", field<&S::tune_follow_ups>(),
     "Trials after the grid, as many for every variant: beyond the edge while the best value is the smallest or largest tried, else beside the best.",
     "2"},
    {"compare.tune.seed", Type::kInteger, at_least(0, 9.2e18), "", field<&S::tune_seed>(),
     "Seed of the trials; none of those that are reported. Further trials of a point take seeds 1,000,000 apart after it.",
     "0"},
    {"compare.tune.seeds", Type::kInteger, at_least(1, 100), "", field<&S::tune_seeds>(),
     "Trials of every point, each with a seed of its own: the point's loss is their mean, and of two or more a point is passed over whose losses spread over four times as much as the middle point's.",
     "2"},

    {"target.metric", Type::kChoice, {}, "val_loss", field<&S::target_metric>(),
     "What has to come down.", "\"val_loss\""},
    {"target.value", Type::kReal, above(0), "", field<&S::target_value>(),
     "The loss to reach. Absent: relative to a variant.", "2.5"},
    {"target.relative_to", Type::kText, {}, "", field<&S::target_relative_to>(),
     "The variant whose mean final loss the target is made from. Absent: the baseline.", "\"ddp\""},
    {"target.factor", Type::kReal, above(0), "", field<&S::target_factor>(),
     "Times that loss (above the entropy, where the data's is known).", "1.01"},

    {"budget.steps", Type::kStepsNow, at_least(0, 1e12), "", field<&S::budget_steps>(),
     "A target reached after this step counts as missed; 0: no bound.", "1200"},
    {"budget.sim_time", Type::kTime, at_least(0, 3e9), "", field<&S::budget_time>(),
     "The same on the simulated clock; \"0s\": no bound.", "\"48h\""},
};
// clang-format on

constexpr std::array<std::string_view, 4> kExperimentSections = {"compare", "target", "budget",
                                                                 "variant"};

}  // namespace

std::span<const KeyRow<ExperimentSettings>> experiment_rows() { return kExperimentRows; }

}  // namespace isthmus::config

namespace isthmus {

bool is_experiment_section(std::string_view name) {
  for (const std::string_view section : config::kExperimentSections) {
    if (section == name) {
      return true;
    }
  }
  return false;
}

}  // namespace isthmus
