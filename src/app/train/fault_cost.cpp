// SPDX-License-Identifier: Apache-2.0
#include "app/train/fault_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "app/train/comparison_retimer.h"
#include "app/train/run_prediction.h"
#include "core/base/units.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

/// "cut of east - west", "pause of east".
std::string name_of(const FaultConfig& fault) {
  return fault.site.empty() ? fmt::format("{} of {} - {}", fault.kind, fault.a, fault.b)
                            : fmt::format("{} of {}", fault.kind, fault.site);
}

std::vector<std::string> notes_on(const Config& config, double clock_s) {
  std::vector<std::string> notes;
  for (const FaultConfig& fault : config.faults) {
    const std::string name =
        fmt::format("{} at {}", name_of(fault), human_time(in_seconds(fault.at)));
    const bool silences = fault.kind == "cut" || fault.kind == "pause";
    if (in_seconds(fault.at) >= clock_s) {
      notes.push_back(fmt::format("{}: the run had ended by then", name));
    } else if (silences && goes_by_arrival(config)) {
      notes.push_back(name +
                      ": nobody waits for longer than outer.grace before the last step; what is "
                      "offered by then is merged when the silence is over");
    } else if (silences && fault.lasts > config.net.dead_after) {
      notes.push_back(
          fmt::format("{}: all wait here; sites of `train --site` leave one out that is silent for "
                      "net.dead_after = {}, go on without it, and take it in again",
                      name, human_time(in_seconds(config.net.dead_after))));
    }
  }
  return notes;
}

}  // namespace

FaultCost cost_of_faults(const Config& config, const Prediction& prediction, Duration measured_step,
                         double clock_s, bool resumed) {
  FaultCost cost{.faults = config.faults.size(),
                 .without_s = prediction.predicted_s,
                 .exact = config.workers() == 1};  // its steps, one after another
  cost.notes = notes_on(config, clock_s);
  // Neither a closed form nor a re-timing knows rates over time: beside their clock, the cost of
  // the trace would pass for the faults' cost.
  const bool traced =
      std::ranges::any_of(config.links, [](const LinkConfig& link) { return !link.trace.empty(); });
  if (traced && !cost.exact) {
    cost.unknown = "links have rates over time (link.trace); simulate the file without [[fault]]";
    return cost;
  }
  Config without = config;
  without.faults.clear();
  const bool all_measured = std::ranges::all_of(
      without.sites, [](const SiteConfig& site) { return site.compute_flops == 0; });
  if (all_measured && measured_step > Duration{0}) without.sim.step_time = measured_step;
  if (!retiming_obstacle(without)) {
    const RetimedRun again =
        Retimer(without).over(without.links, static_cast<std::int64_t>(without.run.seed));
    cost.exact = !resumed;  // syncs under way were begun again
    cost.without_s = in_seconds(again.end().time_since_epoch());
  }
  cost.cost_s = clock_s - cost.without_s;
  return cost;
}

std::string describe(const FaultCost& cost) {
  if (!cost.unknown.empty()) {
    return fmt::format("{}, whose cost is not known: {}", cost.faults, cost.unknown);
  }
  const std::string about = cost.exact ? "" : "about ";
  constexpr double kClockTick = 1e-6;  // less is rounding
  const std::string change = std::abs(cost.cost_s) < kClockTick ? "nothing"
                             : cost.cost_s > 0                  ? about + human_time(cost.cost_s)
                                               : fmt::format("minus {}", human_time(-cost.cost_s));
  return fmt::format("{}, which cost {}: {}{} without {}", cost.faults, change, about,
                     human_time(cost.without_s), cost.faults == 1 ? "it" : "them");
}

std::string fault_cost_json(const FaultCost& cost) {
  JsonLine line;
  line.add("count", static_cast<std::int64_t>(cost.faults));
  if (cost.unknown.empty()) {
    line.add("cost_s", cost.cost_s).add("without_s", cost.without_s);
  } else {
    line.add_null("cost_s").add_null("without_s").add("unknown", cost.unknown);
  }
  return line.add("exact", cost.exact).add("notes", std::span<const std::string>(cost.notes)).str();
}

}  // namespace isthmus::app
