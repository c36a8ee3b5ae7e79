// SPDX-License-Identifier: Apache-2.0
#include "session/checks/change_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config_schema.h"
#include "isthmus/errors.h"
#include "outer/parts/outer_rates.h"
#include "session/run/config_difference.h"
#include "session/run/run_changes.h"

namespace isthmus::app {
namespace {

/// Values that a step reads and that leave nothing behind but the weights and moments that they
/// made; their history is in these.
constexpr std::array<std::string_view, 9> kReadByEachStep = {
    "inner.lr",       "inner.floor", "inner.weight_decay", "inner.clip",          "outer.lr",
    "outer.momentum", "outer.alpha", "outer.lr_floor",     "outer.momentum_floor"};
/// The keys that fix the learning rates of the steps, together with the number of steps.
constexpr std::array<std::string_view, 6> kOfTheSchedule = {
    "train.steps", "train.tokens", "inner.schedule", "inner.warmup", "inner.decay", "inner.rewarm"};

/// What the outer rates of rounds follow from, with the number of steps.
constexpr std::array<std::string_view, 4> kOfOuterRamps = {
    "outer.lr_warmup", "outer.lr_decay", "outer.momentum_warmup", "outer.momentum_decay"};

struct Reason {
  std::string_view keys;  // how they begin
  std::string_view why;
};
/// The first that fits.
constexpr Reason kReasons[] = {
    {"model.", "the weights of the checkpoint have the shapes and the meaning of the former value"},
    {"data.", "the samples of a step follow from it: some would come again, others never"},
    {"train.global_batch", "the samples of a step follow from it: some would come again"},
    {"train.context", "the samples of a step follow from it: some would come again"},
    {"run.seed", "the samples of a step follow from it: some would come again, others never"},
    {"site[", "a site's share of a step follows from its pace"},
    {"inner.", "the optimizer's state is of the former value"},
    {"outer.",
     "the method's state (anchors, momenta, residuals, rounds in flight) is of the former "
     "value"},
    {"parallel.", "sums inside of a site would come in another order"},
    {"net.", "sums between sites would come in another order, and residuals are of the former one"},
    {"", "the steps taken were taken under the former value"}};

bool is_in(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

/// A change that is being judged.
struct Judged {
  const Config& from;
  const Config& to;
  const ConfigDifference& change;
  std::int64_t steps;
  const ChangeRules& rules;

  [[noreturn]] void refuse(std::string_view why, const std::string& remedy) const {
    throw ConfigError(fmt::format("{} {} = {}: the run has taken {} steps with {}: {}; {}",
                                  change_flag(rules.by_argument), change.key,
                                  change.here.empty() ? "absent" : change.here, steps,
                                  change.there.empty() ? "none" : change.there, why, remedy));
  }
  [[nodiscard]] std::string resume_path() const {
    return rules.by_argument ? "resume=PATH" : "--resume PATH";
  }
  /// The way out where a key in steps has another value because it is a share of the run's length;
  /// empty where the change names the key itself.
  [[nodiscard]] std::string keep_in_steps(const std::string& key, std::string_view before) const {
    const auto origin = to.origins.find(key);
    if (origin != to.origins.end() &&
        origin->second.text.starts_with(change_flag(rules.by_argument))) {
      return "";
    }
    return fmt::format("add {}, which it was in steps, or ",
                       way_to_change(rules.by_argument, fmt::format("{}={}", key, before)));
  }
  /// The same of the key that is judged; empty of others.
  [[nodiscard]] std::string keep_in_steps() const {
    if (total_steps(from) == total_steps(to) || change.there.empty()) return "";
    const auto& rows = config::config_rows();
    const auto row = std::ranges::find(rows, change.key, &config::KeyRow<Config>::name);
    const bool in_steps = row != rows.end() && row->type == config::Type::kStepsNow;
    return in_steps && change.key != "train.steps" ? keep_in_steps(change.key, change.there) : "";
  }
  [[nodiscard]] std::string new_run() const {
    return rules.by_argument ? "start a new run from its weights"
                             : "start a new run from its model with model.init";
  }
};

/// Windows are closed where a round has been applied, so that nothing of a former H is left there.
bool closes_windows(const Config& config) {
  const OuterOptions& outer = config.outer;
  return config.method == "diloco" || config.method == "localsgd" ||
         (config.method == "muloco" && outer.overlap == 0 && outer.fragments == 1 &&
          !std::holds_alternative<std::vector<std::int64_t>>(outer.offsets));
}

void check_window(const Judged& judged) {
  const std::string& method = judged.from.method;
  if (!closes_windows(judged.from) || !closes_windows(judged.to)) {
    judged.refuse(
        fmt::format("rounds of \"{}\" are in flight whose windows are of the former H", method),
        judged.keep_in_steps() + judged.new_run());
  }
  for (const std::int64_t h : {judged.from.outer.H, judged.to.outer.H}) {
    if (judged.steps % h == 0) continue;
    judged.refuse(fmt::format("step {} is inside a window of {} steps", judged.steps, h),
                  fmt::format("{}go on from a checkpoint whose step is a multiple of both, with "
                              "{}, or {}",
                              judged.keep_in_steps(), judged.resume_path(), judged.new_run()));
  }
}

/// A run that ended without a closing round has left out the rounds in flight.
void check_end(const Judged& judged) {
  const Config& from = judged.from;
  const bool in_flight = from.origins.contains("outer.final_sync") && !closes_windows(from);
  if (!in_flight || from.outer.final_sync == FinalSync::kFull) return;
  judged.refuse(
      fmt::format("it has ended, and outer.final_sync = \"{}\" left out what \"{}\" had in flight",
                  final_sync_name(from.outer.final_sync), from.method),
      judged.resume_path() + " of a checkpoint before its end, or " + judged.new_run());
}

/// The steps taken have had the outer rates that they would have under `to`. Every step taken is
/// judged, whether a round was sent at it or not: which steps sent is the method's own, and an
/// earlier change may have moved them.
/// Peaks and floors may change: a round reads them once.
void check_outer_ramps(const Judged& judged) {
  const std::int64_t before = total_steps(judged.from);
  const std::int64_t after = total_steps(judged.to);
  const OuterOptions& from = judged.from.outer;
  const OuterOptions& to = judged.to.outer;
  struct Changed {
    const char* name;
    OuterRamp had, given;
  };
  for (const Changed& ramp_of : {Changed{"outer.lr", from.lr_ramp, to.lr_ramp},
                                 Changed{"outer.momentum", from.momentum_ramp, to.momentum_ramp}}) {
    // References: clang 14 lets no lambda capture a structured binding.
    const char* const name = ramp_of.name;
    const OuterRamp& had = ramp_of.had;
    const OuterRamp& given = ramp_of.given;
    OuterRamp would = given;
    would.floor = had.floor;
    const auto fits = [&](const OuterRamp& ramp) {
      for (std::int64_t t = 1; t <= judged.steps; ++t) {
        if (outer::ramp_share(had, StepIndex(t), before) !=
            outer::ramp_share(ramp, StepIndex(t), after)) {
          return false;
        }
      }
      return true;
    };
    for (std::int64_t t = 1; t <= judged.steps; ++t) {
      const double share = outer::ramp_share(had, StepIndex(t), before);
      const double other = outer::ramp_share(would, StepIndex(t), after);
      if (share == other) continue;
      const bool rises = t < std::max(had.warmup, would.warmup);
      const std::int64_t was = rises ? had.warmup : had.decay;
      const std::int64_t is = rises ? would.warmup : would.decay;
      const bool would_earlier = is > 0 && (was == 0 || after - is < before - was);
      const std::string key = fmt::format("{}_{}", name, rises ? "warmup" : "decay");
      const std::string why =
          rises ? fmt::format(
                      "step {} had {:.3g} of {}, and would have had {:.3g} under {} = {} (every "
                      "step taken is judged, whether a round was sent at it or not)",
                      t, share, name, other, key, is)
                : fmt::format("{} = {} of {} steps has begun, or would have, by step {}", key,
                              would_earlier ? is : was, would_earlier ? after : before, t);
      OuterRamp kept = would;
      (rises ? kept.warmup : kept.decay) = was;
      const bool by_length = was != is && before != after && fits(kept);
      judged.refuse(why,
                    fmt::format("{}{} of a checkpoint up to step {}, or {}",
                                by_length ? judged.keep_in_steps(key, fmt::to_string(was)) : "",
                                judged.resume_path(), t - 1, judged.new_run()));
    }
  }
}

/// There are steps left, and the steps taken have had the rates that they would have under `to`.
void check_schedule(const Judged& judged) {
  const std::int64_t before = total_steps(judged.from);
  const std::int64_t after = total_steps(judged.to);
  if (after != before && after <= judged.steps) {
    judged.refuse("there would be no step left to end with",
                  fmt::format("{} steps or more, or {} of an earlier checkpoint", judged.steps + 1,
                              judged.resume_path()));
  }
  if (after != before && judged.steps == before) check_end(judged);
  check_outer_ramps(judged);
  if (!judged.rules.rates) return;
  if (const auto unfit = judged.rules.rates(judged.from, judged.to, judged.steps)) {
    judged.refuse(unfit->why, unfit->remedy);
  }
}

/// Whether the value is part of config_digest.
bool steers(std::string_view key) {
  if (key.starts_with("site[")) return key.ends_with("].pace");
  if (key == "parallel.tp" || key == "parallel.pp" || key == "parallel.dp") return false;
  const auto& rows = config::config_rows();
  const auto row = std::ranges::find(rows, key, &config::KeyRow<Config>::name);
  return row != rows.end() && row->steers;
}

void check_key(const Judged& judged) {
  const std::string& key = judged.change.key;
  if (key == "outer.H") return check_window(judged);
  if (is_in(kOfTheSchedule, key)) return check_schedule(judged);
  if (is_in(kOfOuterRamps, key)) return check_outer_ramps(judged);
  if (is_in(kReadByEachStep, key)) {
    if (judged.from.method != "eager" || !key.starts_with("outer.")) return;
    judged.refuse(
        "the own part of the round in flight went in under the former value and would come out "
        "under the new one",
        judged.new_run());
  }
  const auto reason = std::ranges::find_if(
      kReasons, [&](const Reason& each) { return key.starts_with(each.keys); });
  judged.refuse(reason->why, judged.keep_in_steps() + judged.new_run());
}

}  // namespace

void check_change(const Config& from, const Config& to, std::int64_t steps,
                  const ChangeRules& rules) {
  std::vector<ConfigDifference> changes = differing_keys(resolved_toml(from), resolved_toml(to));
  // A key that comes or goes with another key's value is no change by the user.
  std::stable_partition(changes.begin(), changes.end(), [](const ConfigDifference& each) {
    return !each.there.empty() && !each.here.empty();
  });
  // Of keys that are shares of the run's length, its length is what was asked for.
  std::stable_partition(changes.begin(), changes.end(), [](const ConfigDifference& each) {
    return each.key == "train.steps" || each.key == "train.tokens";
  });
  for (const ConfigDifference& change : changes) {
    if (!steers(change.key)) continue;
    check_key({.from = from, .to = to, .change = change, .steps = steps, .rules = rules});
  }
}

}  // namespace isthmus::app
