// SPDX-License-Identifier: Apache-2.0
#include "app/train/change_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config_schema.h"
#include "inner/model/schedule.h"
#include "isthmus/errors.h"
#include "session/run/config_difference.h"

namespace isthmus::app {
namespace {

/// Values that a step reads and that leave nothing behind but the weights and moments that they
/// made; their history is in these.
constexpr std::array<std::string_view, 7> kReadByEachStep = {
    "inner.lr", "inner.floor",    "inner.weight_decay", "inner.clip",
    "outer.lr", "outer.momentum", "outer.alpha"};
/// What the rates of the steps follow from, with the number of steps.
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

[[noreturn]] void refuse(const ConfigDifference& change, std::int64_t steps, std::string_view why,
                         const std::string& remedy) {
  throw ConfigError(fmt::format("--change {} = {}: the run has taken {} steps with {}: {}; {}",
                                change.key, change.here.empty() ? "absent" : change.here, steps,
                                change.there.empty() ? "none" : change.there, why, remedy));
}

const std::string kNewRun = "start a new run from its model with model.init";

/// Windows of these methods are closed where a round has been applied, so that nothing is left of a
/// former H there.
void check_window(const Config& from, const Config& to, const ConfigDifference& change,
                  std::int64_t steps) {
  if (from.method != "diloco" && from.method != "localsgd") {
    refuse(change, steps,
           fmt::format("rounds of \"{}\" are in flight whose windows are of the former H",
                       from.method),
           kNewRun);
  }
  for (const std::int64_t h : {from.outer.H, to.outer.H}) {
    if (steps % h == 0) continue;
    refuse(change, steps, fmt::format("step {} is inside a window of {} steps", steps, h),
           fmt::format("go on from a checkpoint whose step is a multiple of both, with --resume "
                       "PATH, or {}",
                       kNewRun));
  }
}

/// A run that has ended without a closing round has left out what was in flight.
void check_end(const Config& from, const ConfigDifference& change, std::int64_t steps) {
  const bool in_flight = from.origins.contains("outer.final_sync") && from.method != "diloco" &&
                         from.method != "localsgd";
  if (!in_flight || from.outer.final_sync == FinalSync::kFull) return;
  refuse(
      change, steps,
      fmt::format("it has ended, and outer.final_sync = \"{}\" left out what \"{}\" had in flight",
                  final_sync_name(from.outer.final_sync), from.method),
      "--resume PATH of a checkpoint before its end, or " + kNewRun);
}

/// The way out of rates that would have been others.
std::string rate_remedy(const Config& from, std::int64_t before) {
  std::string text;
  for (const auto& [key, span] :
       {std::pair{"inner.warmup", from.inner.warmup}, {"inner.decay", from.inner.decay}}) {
    if (!span.fraction || *span.fraction == 0) continue;
    text += fmt::format("add --change {}={}, which it was in steps, ", key, span.resolve(before));
  }
  return text +
         "go on from an earlier checkpoint (--resume PATH), give runs that may grow "
         "inner.schedule = \"constant\" or \"wsd\", or " +
         kNewRun;
}

/// The steps taken have had the rates that they would have under `to`.
void check_rates(const Config& from, const Config& to, const ConfigDifference& change,
                 std::int64_t steps) {
  const std::int64_t before = total_steps(from);
  const std::int64_t after = total_steps(to);
  if (after != before && after <= steps) {
    refuse(change, steps, "there would be no step left to end with",
           fmt::format("{} steps or more, or --resume PATH of an earlier checkpoint", steps + 1));
  }
  if (after != before && steps == before) check_end(from, change, steps);
  InnerConfig shape = to.inner;  // its peak and floor may change
  shape.lr = from.inner.lr;
  shape.floor = from.inner.floor;
  const LearningRateSchedule had(from.inner, before);
  const LearningRateSchedule would(shape, after);
  for (std::int64_t t = 1; t <= steps; ++t) {
    if (had.at(StepIndex(t)) == would.at(StepIndex(t))) continue;
    refuse(
        change, steps,
        fmt::format("under inner.schedule = \"{}\" the rate of step {}, which was {}, would have "
                    "been {}",
                    to.inner.schedule, t, had.at(StepIndex(t)), would.at(StepIndex(t))),
        rate_remedy(from, before));
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

void check_key(const Config& from, const Config& to, const ConfigDifference& change,
               std::int64_t steps) {
  if (change.key == "outer.H") return check_window(from, to, change, steps);
  if (is_in(kOfTheSchedule, change.key)) return check_rates(from, to, change, steps);
  if (is_in(kReadByEachStep, change.key)) {
    if (from.method != "eager" || !change.key.starts_with("outer.")) return;
    refuse(change, steps,
           "the own part of the round in flight went in under the former value and would come out "
           "under the new one",
           kNewRun);
  }
  const auto reason = std::ranges::find_if(
      kReasons, [&](const Reason& each) { return change.key.starts_with(each.keys); });
  refuse(change, steps, reason->why, kNewRun);
}

}  // namespace

void check_change(const Config& from, const Config& to, std::int64_t steps) {
  std::vector<ConfigDifference> changes = differing_keys(resolved_toml(from), resolved_toml(to));
  // Keys that come or go with another one's value are not what has been changed.
  std::ranges::stable_partition(changes, [](const ConfigDifference& each) {
    return !each.there.empty() && !each.here.empty();
  });
  for (const ConfigDifference& change : changes) {
    if (steers(change.key)) check_key(from, to, change, steps);
  }
}

}  // namespace isthmus::app
