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
#include "session/run/config_difference.h"
#include "session/run/run_changes.h"

namespace isthmus::app {
namespace {

/// Values that a step reads and that leave nothing behind but the weights and moments that they
/// made; their history is in these.
constexpr std::array<std::string_view, 7> kReadByEachStep = {
    "inner.lr", "inner.floor",    "inner.weight_decay", "inner.clip",
    "outer.lr", "outer.momentum", "outer.alpha"};
/// The keys that fix the learning rates of the steps, together with the number of steps.
constexpr std::array<std::string_view, 6> kOfTheSchedule = {
    "train.steps", "train.tokens", "inner.schedule", "inner.warmup", "inner.decay", "inner.rewarm"};

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
        judged.new_run());
  }
  for (const std::int64_t h : {judged.from.outer.H, judged.to.outer.H}) {
    if (judged.steps % h == 0) continue;
    judged.refuse(fmt::format("step {} is inside a window of {} steps", judged.steps, h),
                  fmt::format("go on from a checkpoint whose step is a multiple of both, with {}, "
                              "or {}",
                              judged.resume_path(), judged.new_run()));
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

/// A decay of the outer rates counts from the end, so no step taken may lie in it, before or after.
void check_outer_decay(const Judged& judged, std::int64_t before, std::int64_t after) {
  for (const auto& [key, ramp] : {std::pair{"outer.lr_decay", judged.from.outer.lr_ramp},
                                  {"outer.momentum_decay", judged.from.outer.momentum_ramp}}) {
    const std::int64_t begins = std::min(before, after) - ramp.decay;
    if (ramp.decay == 0 || after == before || judged.steps <= begins) continue;
    judged.refuse(fmt::format("{} = {} of {} steps has begun, or would have, by step {}", key,
                              ramp.decay, std::min(before, after), begins + 1),
                  fmt::format("{} of a checkpoint up to step {}, or {}", judged.resume_path(),
                              std::max<std::int64_t>(0, begins), judged.new_run()));
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
  check_outer_decay(judged, before, after);
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
  if (is_in(kReadByEachStep, key)) {
    if (judged.from.method != "eager" || !key.starts_with("outer.")) return;
    judged.refuse(
        "the own part of the round in flight went in under the former value and would come out "
        "under the new one",
        judged.new_run());
  }
  const auto reason = std::ranges::find_if(
      kReasons, [&](const Reason& each) { return key.starts_with(each.keys); });
  judged.refuse(reason->why, judged.new_run());
}

}  // namespace

void check_change(const Config& from, const Config& to, std::int64_t steps,
                  const ChangeRules& rules) {
  std::vector<ConfigDifference> changes = differing_keys(resolved_toml(from), resolved_toml(to));
  // A key that comes or goes with another key's value is no change by the user.
  std::stable_partition(changes.begin(), changes.end(), [](const ConfigDifference& each) {
    return !each.there.empty() && !each.here.empty();
  });
  for (const ConfigDifference& change : changes) {
    if (!steers(change.key)) continue;
    check_key({.from = from, .to = to, .change = change, .steps = steps, .rules = rules});
  }
}

}  // namespace isthmus::app
