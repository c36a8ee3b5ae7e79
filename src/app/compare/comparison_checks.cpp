// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "app/train/last_windows.h"
#include "app/train/model_steps.h"
#include "core/base/storage.h"
#include "isthmus/outer.h"
#include "session/run/config_difference.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kFewestRounds = 20;  // Nesterov's 0.9 remembers ten
constexpr double kMostEpochs = 4;           // beyond, averaging methods win by regularising
constexpr double kSlowestBeta2 = 0.999;     // a variance frozen with less freezes noise

bool takes(const Config& config, std::string_view key) {
  const std::vector<MethodInfo> known = methods();
  return std::any_of(known.begin(), known.end(), [&](const MethodInfo& method) {
    return method.name == config.method &&
           std::find(method.keys.begin(), method.keys.end(), key) != method.keys.end();
  });
}

class Weaknesses {
 public:
  void look_at(const std::string& name, const Config& config, const DataFacts& data) {
    const std::int64_t steps = total_steps(config);
    const std::int64_t H = config.outer.H;
    if (takes(config, "H") && H > 0) {
      if (takes(config, "momentum") && steps / H < kFewestRounds) {
        note(
            fmt::format("{}: {} rounds (H = {}, {} steps), fewer than the {} that an outer "
                        "momentum needs to settle",
                        name, steps / H, H, steps, kFewestRounds));
      }
      if (steps % H != 0) {
        note(fmt::format("{}: {} steps are no multiple of H = {}", name, steps, H));
      }
    }
    if (config.train.trainer == "external") return;  // its model and samples are not known
    const outer::RunEnd end = run_end_of(config);
    for (const std::string& text : warnings_about_end(config, end)) {
      note(fmt::format("{}: {}", name, text));
    }
    carried_[carried_steps(config, end)].push_back(name);
    some_lost_ = some_lost_ || !end.uncarried.empty() || end.own_part_only > 0;
    const bool frozen = config.method == "1bit-adam" || config.method == "01-adam";
    if (frozen && config.inner.beta2 < kSlowestBeta2) {
      note(
          fmt::format("{}: freezes the variance of beta2 = {}; 0.999, in the baseline too, is "
                      "what the method is for",
                      name, config.inner.beta2));
    }
    if (config.method == "spsa" && config.model.init.empty()) {
      note(fmt::format("{}: spsa is a fine-tuning method; from random weights it shows nothing",
                       name));
    }
    const double tokens =
        static_cast<double>(steps) * static_cast<double>(config.train.global_batch_tokens);
    const double epochs = tokens / static_cast<double>(data.train_tokens);
    if (data.entropy == 0 && epochs > kMostEpochs) {
      note(
          fmt::format("{:.1f} epochs over the text: beyond {} averaging methods gain by "
                      "regularising",
                      epochs, kMostEpochs));
    }
  }
  /// Times and bytes are compared as the methods' own, so other causes of differences are told.
  void look_at_clock(const std::string& name, const Config& config, const std::string& first,
                     const Config& other) {
    constexpr std::array<std::string_view, 6> kOfTheClock = {"run.workers", "site[",      "link[",
                                                             "fault[",      "surrogate.", "sim."};
    for (const std::string& each :
         config_differences(resolved_toml(other), resolved_toml(config))) {
      if (std::any_of(kOfTheClock.begin(), kOfTheClock.end(),
                      [&](std::string_view start) { return each.starts_with(start); })) {
        note(fmt::format("{}: its clock is not that of {} ({}): times and bytes differ by that too",
                         name, first, each));
        return;
      }
    }
  }
  /// Losses are those of outer parameters, so variants are compared by the steps that reach them.
  void look_at_windows() {
    if (carried_.size() < 2 || !some_lost_) return;
    std::string text;
    for (const auto& [steps, names] : carried_) {
      text += fmt::format("{}{} in {}", text.empty() ? "" : "; ", counted_steps(steps),
                          fmt::join(names, ", "));
    }
    note(fmt::format("variants of unlike trained windows: the last loss has {}", text));
  }
  /// Outer momentum decides much where rounds are few, and the best one falls with their number.
  void look_at_momentum(const std::string& name, const Config& config,
                        const std::vector<TuneAxis>& space) {
    const bool tuned = std::ranges::any_of(
        space, [](const TuneAxis& axis) { return axis.key == "outer.momentum"; });
    if (tuned || space.empty() || !takes(config, "momentum")) return;
    if (config.outer.momentum.value_or(0) > 0) untuned_[*config.outer.momentum].push_back(name);
  }
  void look_at_untuned_momenta() {
    if (untuned_.empty()) return;
    std::string text;
    for (const auto& [momentum, names] : untuned_) {
      text += fmt::format("{}{} in {}", text.empty() ? "" : "; ", momentum, fmt::join(names, ", "));
    }
    note(fmt::format(
        "outer momentum was not tuned ({}): the best one depends on the optimizer inside and on "
        "the number of rounds, so these methods may do better (isthmus explain diloco)",
        text));
  }
  [[nodiscard]] std::vector<std::string> take() { return std::move(notes_); }

 private:
  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
      notes_.push_back(std::move(text));
    }
  }
  static std::string counted_steps(std::int64_t steps) {
    return fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
  }

  std::vector<std::string> notes_;
  std::map<double, std::vector<std::string>> untuned_;        // by momentum: variants
  std::map<std::int64_t, std::vector<std::string>> carried_;  // by steps: variants
  bool some_lost_ = false;                                    // steps of one of them
};

}  // namespace

std::vector<std::string> weaknesses_of(const Experiment& experiment, const ComparisonPlan& plan,
                                       const DataFactsOf& data) {
  Weaknesses weaknesses;
  const std::size_t first = plan.variants()[plan.baseline()];
  const std::string& baseline = experiment.variants()[first].name;
  const Config config_of_baseline = experiment.config(first, {});
  for (const Cell& cell : plan.outline()) {
    if (cell.stage == report::CellStage::kSeed && cell.number == 0) {
      const std::string& name = experiment.variants()[cell.variant].name;
      weaknesses.look_at(name, cell.config, data(cell.config));
      weaknesses.look_at_clock(name, cell.config, baseline, config_of_baseline);
      weaknesses.look_at_momentum(name, cell.config, experiment.variants()[cell.variant].space);
    }
  }
  weaknesses.look_at_windows();
  weaknesses.look_at_untuned_momenta();
  return weaknesses.take();
}

std::vector<std::string> lost_steps_of(const Experiment& experiment, const ComparisonPlan& plan) {
  std::vector<std::string> texts;
  std::set<std::filesystem::path> begun_from;  // each is read once
  for (const Cell& cell : plan.outline()) {
    if (cell.config.train.trainer == "external") continue;  // its model is not known
    const std::string& name = experiment.variants()[cell.variant].name;
    if (begun_from.insert(cell.config.model.init).second) {
      std::string text = unapplied_text_of_init(SystemStorage(), cell.config);
      if (!text.empty()) texts.push_back(std::move(text));
    }
    std::vector<std::string> of_cell = warnings_about_end(cell.config, run_end_of(cell.config));
    of_cell.push_back(short_of_inner_warmup(cell.config));
    std::erase(of_cell, "");
    for (const std::string& text : of_cell) {
      std::string told = fmt::format("{}: {}", name, text);
      if (std::ranges::find(texts, told) == texts.end()) texts.push_back(std::move(told));
    }
  }
  return texts;
}

std::string digest_under_former_default(const Config& config) {
  const auto origin = config.origins.find("outer.final_sync");
  if (origin == config.origins.end() || origin->second.text != "default") return "";
  Config former = config;
  former.outer.final_sync = FinalSync::kDrain;
  return outcome_digest(former);
}

}  // namespace isthmus::app
