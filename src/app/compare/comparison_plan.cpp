// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/common/commands.h"
#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/base/suggest.h"
#include "inner/loop/model_cost.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kQuickSeeds = 3;
constexpr std::int64_t kQuickDivisor = 4;

Setting setting(std::string key, std::string value, std::string origin) {
  return {.key = std::move(key), .value = std::move(value), .origin = std::move(origin)};
}

/// A quarter of the run, at least one step of it.
Setting quick_length(const Config& config) {
  if (config.train.steps) {
    const std::int64_t steps = std::max<std::int64_t>(1, *config.train.steps / kQuickDivisor);
    return setting("train.steps", fmt::format("{}", steps), "--quick");
  }
  const std::int64_t tokens =
      std::max(config.train.global_batch_tokens, *config.train.tokens / kQuickDivisor);
  return setting("train.tokens", fmt::format("{}", tokens), "--quick");
}

/// Floating-point operations: training, and evaluations at a third of it (forward alone).
double cost_of(const Config& config) {
  if (config.train.trainer == "external") {  // its model is not known: steps count
    return static_cast<double>(total_steps(config)) * config.workers();
  }
  const ModelLayout layout(model_shape(config.model, config.train.context));
  const std::int64_t steps = total_steps(config);
  const std::int64_t every = config.eval.every.resolve(steps);
  const std::int64_t evaluations = 1 + (every > 0 ? (steps - 1) / every : 0);
  const double trained =
      static_cast<double>(steps) * static_cast<double>(config.train.global_batch_tokens);
  const double evaluated =
      static_cast<double>(evaluations) * static_cast<double>(config.eval.tokens);
  const double passes = forward_only(config) ? 2.0 / 3 : 1;
  return (passes * trained + evaluated / 3) *
         training_flops_per_token(layout, config.train.context);
}

/// The variant that the target is relative to takes part.
void check_target(const Experiment& experiment, const std::vector<std::size_t>& members) {
  const std::string& name = experiment.settings().target_relative_to;
  const bool there = std::any_of(members.begin(), members.end(), [&](std::size_t v) {
    return experiment.variants()[v].name == name;
  });
  if (!name.empty() && !there) {
    throw UsageError(
        fmt::format("--only leaves out '{}', whose loss target.relative_to makes the target of: "
                    "name it too, or "
                    "--set target.relative_to={}",
                    name, experiment.variants()[members.front()].name));
  }
}

template <typename Named>
std::string named_text(const Named& elements) {
  std::string text;
  for (const auto& [name, value] : elements) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

/// Losses are compared, so all variants are evaluated on the same windows of the same data.
void check_evaluations(const Experiment& experiment, const std::vector<std::size_t>& members) {
  const auto measured_on = [](const Config& config) {
    return std::vector<std::pair<std::string, std::string>>{
        {"data.source", config.located_source()},
        {"data.sources", named_text(config.located_sources())},
        {"data.mix", named_text(config.data.mix)},
        {"data.pack", config.data.pack},
        {"train.objective", config.train.objective},
        {"data.over_long", config.data.over_long},
        // Its tokenizer and template make the windows of conversations.
        {"model.init", config.train.objective == "sft"
                           ? config.locate(config.model.init).lexically_normal().string()
                           : std::string()},
        {"data.val_fraction", fmt::format("{}", config.data.val_fraction)},
        {"train.context", fmt::format("{}", config.train.context)},
        {"eval.tokens", config.eval.all ? "all" : fmt::format("{}", config.eval.tokens)}};
  };
  const auto first = measured_on(experiment.config(members.front(), {}));
  for (const std::size_t v : members) {
    const auto own = measured_on(experiment.config(v, {}));
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i].second != first[i].second) {
        throw ConfigError(fmt::format(
            "{}: variant '{}' has {} = {}, '{}' has {}: losses on other windows cannot be "
            "compared; leave it to the base",
            experiment.file().string(), experiment.variants()[v].name, own[i].first, own[i].second,
            experiment.variants()[members.front()].name, first[i].second));
      }
    }
  }
}

/// Times are compared, so all variants have a clock or none has, and the clock depends on no
/// machine.
void check_clocks(const Experiment& experiment, const std::vector<std::size_t>& members) {
  std::string with;
  std::string without;
  for (const std::size_t v : members) {
    const std::string& name = experiment.variants()[v].name;
    const Config config = experiment.config(v, {});
    (runs_simulated(config) ? with : without) = name;
    if (runs_simulated(config) && !declares_step_time(config)) {
      throw ConfigError(fmt::format(
          "{}: variant '{}' has links and no step time: runs side by side cannot measure one; give "
          "[surrogate], sim.step_time = \"250ms\" or site.compute",
          experiment.file().string(), name));
    }
  }
  if (with.empty() && experiment.settings().budget_time > Duration{0}) {
    throw ConfigError(fmt::format(
        "{}: budget.sim_time without a simulated clock: no run could be late; give [[link]] and a "
        "step time, or budget.steps",
        experiment.file().string()));
  }
  if (!with.empty() && !without.empty()) {
    throw ConfigError(fmt::format(
        "{}: variant '{}' is simulated and '{}' is not: give both [[link]] (or sim.step_time where "
        "there is one worker), or neither",
        experiment.file().string(), with, without));
  }
}

}  // namespace

bool runs_simulated(const Config& config) {
  return !config.links.empty() || (config.workers() == 1 && declares_step_time(config));
}

ComparisonPlan::ComparisonPlan(const Experiment& experiment, PlanOptions options)
    : experiment_(experiment), options_(std::move(options)) {
  const ExperimentSettings& settings = experiment.settings();
  std::vector<std::string> unknown = options_.only;
  for (std::size_t v = 0; v < experiment.variants().size(); ++v) {
    const std::string& name = experiment.variants()[v].name;
    const bool asked = std::erase(unknown, name) > 0 || options_.only.empty();
    if (v == experiment.baseline()) {
      baseline_ = members_.size();
    }
    if (asked || v == experiment.baseline()) {
      members_.push_back(v);
    }
  }
  if (!unknown.empty() || members_.size() < 2) {
    refuse_only(unknown);
  }
  check_target(experiment, members_);
  check_evaluations(experiment, members_);
  check_clocks(experiment, members_);
  seeds_ = settings.seeds;
  if (options_.quick) {
    seeds_.resize(std::min(seeds_.size(), kQuickSeeds));
  }
  const bool tuned = !experiment.variants().front().space.empty();
  trials_ = tuned ? grid_of(experiment.variants().front().space).size() : 0;
  follow_ups_ = tuned ? static_cast<std::size_t>(settings.tune_follow_ups) : 0;
  trial_seeds_ = settings.seeds_of_trials(options_.tried);
  for (std::size_t m = 0; m < members_.size(); ++m) {
    State& state = states_.emplace_back();
    state.grid = grid_of(experiment.variants()[members_[m]].space);
    state.runs.resize(seeds_.size());
    if (tuned) {
      for (const Point& point : state.grid) {
        state.trials.push_back({.point = point, .losses = {}});
        state.trials.back().losses.resize(trial_seeds_.size());
      }
      state.follow_ups_left = follow_ups_;
      state.cost_of_trial = make_trial(m, state.grid.front(), 0).cost;
    } else {
      state.rates_known = true;
    }
    state.cost_of_run = make_run(m, state.grid.front(), 0).cost;
  }
  remaining_ = total();
}

void ComparisonPlan::refuse_only(const std::vector<std::string>& unknown) const {
  std::vector<std::string> names;
  for (const ExperimentVariant& variant : experiment_.variants()) {
    names.push_back(variant.name);
  }
  if (unknown.empty()) {
    throw UsageError(fmt::format("--only {}: the baseline alone is no comparison; variants: {}",
                                 join(options_.only, ","), join(names)));
  }
  const auto near = closest(unknown.front(), names);
  throw UsageError(fmt::format(
      "--only: no variant '{}'; {}", unknown.front(),
      near ? fmt::format("did you mean '{}'?", *near) : fmt::format("variants: {}", join(names))));
}

std::size_t ComparisonPlan::total() const {
  return members_.size() * ((trials_ + follow_ups_) * trial_seeds_.size() + seeds_.size());
}

std::vector<Cell> ComparisonPlan::outline() const {
  std::vector<Cell> cells;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    for (std::size_t i = 0; i < trials_ * trial_seeds_.size(); ++i) {
      cells.push_back(make_trial(m, states_[m].grid[i / trial_seeds_.size()], i));
    }
    for (std::size_t i = 0; i < seeds_.size(); ++i) {
      cells.push_back(make_run(m, states_[m].grid.front(), i));
    }
  }
  return cells;
}

Cell ComparisonPlan::make_trial(std::size_t member, const Point& point, std::size_t number) const {
  const std::size_t seeds = trial_seeds_.size();
  Cell cell{.variant = members_[member],
            .stage = report::CellStage::kTune,
            .seed = trial_seeds_[number % seeds],
            .number = number};
  cell.directory =
      fmt::format("{}/tune-{:02}{}", experiment_.variants()[cell.variant].name, number / seeds + 1,
                  number % seeds == 0 ? "" : fmt::format("-seed-{}", cell.seed));
  return make_cell(std::move(cell), point);
}

Cell ComparisonPlan::make_run(std::size_t member, const Point& point, std::size_t number) const {
  Cell cell{.variant = members_[member],
            .stage = report::CellStage::kSeed,
            .seed = seeds_[number],
            .number = number};
  cell.directory = fmt::format("{}/seed-{}", experiment_.variants()[cell.variant].name, cell.seed);
  return make_cell(std::move(cell), point);
}

Cell ComparisonPlan::make_cell(Cell cell, const Point& point) const {
  const bool trial = cell.stage == report::CellStage::kTune;
  std::vector<Setting> settings = point;
  settings.push_back(setting("run.seed", fmt::format("{}", cell.seed),
                             fmt::format("seed of the comparison's {}", trial ? "trials" : "run")));
  settings.push_back(setting("ckpt.every", "\"0s\"", "comparison"));
  if (trials_ > 0) {
    // Variants are tuned on one half and reported on the other.
    settings.push_back(setting("eval.part", trial ? "\"second\"" : "\"first\"", "comparison"));
  }
  if (trial) {
    settings.push_back(setting("eval.every", "0", "trial of the comparison: at the end"));
  }
  if (options_.quick) {
    settings.push_back(quick_length(experiment_.config(cell.variant, point)));
  }
  cell.config = experiment_.config(cell.variant, settings);
  cell.point = point;
  cell.simulated = runs_simulated(cell.config);
  cell.cost = cost_of(cell.config);
  const std::string inputs = options_.inputs ? options_.inputs(cell.config) : "";
  cell.configuration = outcome_digest(cell.config);
  cell.key = xxh3_128(as_bytes(fmt::format("cell 1\n{}\n{}\n{}", cell.configuration, inputs,
                                           cell.simulated ? "simulated" : "real")))
                 .hex();
  return cell;
}

std::optional<Cell> ComparisonPlan::next() {
  // Trials first: follow-ups wait for one another, so the chain they make should begin early.
  for (std::size_t m = 0; m < states_.size(); ++m) {
    if (auto cell = next_trial(m)) {
      return cell;
    }
  }
  for (std::size_t m = 0; m < states_.size(); ++m) {
    State& state = states_[m];
    if (state.rates_known && state.runs_begun < state.runs.size()) {
      return make_run(m, state.chosen, state.runs_begun++);
    }
  }
  return std::nullopt;
}

std::optional<Cell> ComparisonPlan::next_trial(std::size_t member) {
  State& state = states_[member];
  if (state.rates_known) {
    return std::nullopt;
  }
  const std::size_t seeds = trial_seeds_.size();
  if (state.begun < state.trials.size() * seeds) {
    const std::size_t number = state.begun++;
    return make_trial(member, state.trials[number / seeds].point, number);
  }
  if (state.ended < state.begun || state.follow_ups_left == 0) {
    return std::nullopt;
  }
  const auto point =
      follow_up(trials_of(state), [&](const Point& at) { return allowed(member, at); });
  if (!point) {
    settle_tuning(member);
    return std::nullopt;
  }
  --state.follow_ups_left;
  state.trials.push_back({.point = *point, .losses = {}});
  state.trials.back().losses.resize(seeds);
  return make_trial(member, *point, state.begun++);
}

bool ComparisonPlan::allowed(std::size_t member, const Point& point) const {
  try {
    (void)experiment_.config(members_[member], point);
    return true;
  } catch (const ConfigErrors&) {
    return false;
  }
}

std::vector<Trial> ComparisonPlan::trials_of(const State& state) {
  std::vector<Trial> trials;
  for (const Tried& tried : state.trials) {
    std::vector<double> losses;
    for (const std::optional<double>& loss : tried.losses) {
      if (loss) losses.push_back(*loss);
    }
    if (!losses.empty()) trials.push_back(trial_of(tried.point, losses));
  }
  return trials;
}

void ComparisonPlan::settle_tuning(std::size_t member) {
  State& state = states_[member];
  const std::vector<Trial> trials = trials_of(state);
  const Trial* best = best_of(trials);
  state.rates_known = true;
  // Where every trial failed the runs show it too.
  state.chosen = best == nullptr ? state.grid.front() : best->point;
  state.tuning_loss = best == nullptr ? std::numeric_limits<double>::infinity() : best->loss;
  state.edges = edges_of(trials, [&](const Point& at) { return allowed(member, at); });
  remaining_ -= state.follow_ups_left * trial_seeds_.size();
  state.follow_ups_left = 0;
}

void ComparisonPlan::finish(const Cell& cell, report::CellResult result) {
  const auto member = static_cast<std::size_t>(
      std::find(members_.begin(), members_.end(), cell.variant) - members_.begin());
  State& state = states_[member];
  --remaining_;
  if (cell.stage == report::CellStage::kSeed) {
    ISTHMUS_CHECK(!state.runs[cell.number], cell.number);
    state.runs[cell.number] = std::move(result);
    return;
  }
  const std::size_t seeds = trial_seeds_.size();
  std::optional<double>& loss = state.trials[cell.number / seeds].losses[cell.number % seeds];
  ISTHMUS_CHECK(!loss, cell.number);
  loss = result.final_loss();
  ++state.ended;
  const bool all_done = state.ended == state.trials.size() * seeds;
  if (all_done && state.follow_ups_left == 0) {
    settle_tuning(member);
  }
}

bool ComparisonPlan::done() const { return remaining_ == 0; }

double ComparisonPlan::total_cost() const {
  double cost = 0;
  for (const State& state : states_) {
    cost +=
        static_cast<double>((trials_ + follow_ups_) * trial_seeds_.size()) * state.cost_of_trial +
        static_cast<double>(seeds_.size()) * state.cost_of_run;
  }
  return cost;
}

double ComparisonPlan::remaining_cost() const {
  double cost = 0;
  for (const State& state : states_) {
    const std::size_t trials =
        state.rates_known ? 0 : (trials_ + follow_ups_) * trial_seeds_.size() - state.ended;
    const auto runs = std::count(state.runs.begin(), state.runs.end(), std::nullopt);
    cost += static_cast<double>(trials) * state.cost_of_trial +
            static_cast<double>(runs) * state.cost_of_run;
  }
  return cost;
}

Config ComparisonPlan::config_of_run(std::size_t member) const {
  ISTHMUS_CHECK(done());
  return make_run(member, states_[member].chosen, 0).config;
}

std::vector<report::ComparedVariant> ComparisonPlan::results() const {
  ISTHMUS_CHECK(done(), remaining_);
  std::vector<report::ComparedVariant> results;
  for (std::size_t m = 0; m < states_.size(); ++m) {
    const State& state = states_[m];
    report::ComparedVariant& result = results.emplace_back();
    result.name = experiment_.variants()[members_[m]].name;
    result.trials = static_cast<int>(state.trials.size());
    result.trial_seeds = static_cast<int>(trial_seeds_.size());
    for (const Trial& trial : trials_of(state)) {
      if (!unsteady(trials_of(state), trial)) continue;
      auto& passed = result.passed_over.emplace_back();
      for (const Setting& value : trial.point) passed.emplace_back(value.key, value.value);
    }
    result.tuning_loss = state.tuning_loss;
    for (const Setting& value : state.chosen) {
      result.tuned.emplace_back(value.key, value.value);
    }
    for (const GridEdge& edge : state.edges) {
      result.edges.push_back({edge.key, edge.value, edge.largest});
    }
    for (const auto& run : state.runs) {
      result.runs.push_back(*run);
    }
    result.method = result.runs.front().method;
  }
  return results;
}

}  // namespace isthmus::app
