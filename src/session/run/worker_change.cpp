// SPDX-License-Identifier: Apache-2.0
#include "session/run/worker_change.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/state/state_snapshot.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "outer/parts/settings.h"
#include "outer/parts/unapplied_steps.h"
#include "session/run/run_settings.h"

namespace isthmus::app {
namespace {

/// Empty where the checkpoint does not say them.
std::vector<std::string> names_of(const CheckpointInfo& info) {
  std::vector<std::string> names;
  const auto kept = info.settings.find(kWorkerNames);
  if (kept == info.settings.end()) return names;
  std::string_view rest = kept->second;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    names.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (names.size() != static_cast<std::size_t>(info.workers)) names.clear();
  return names;
}

std::string name_of(const CheckpointInfo& info, int worker) {
  const std::vector<std::string> names = names_of(info);
  return names.empty() ? fmt::format("worker {}", worker) : names[static_cast<std::size_t>(worker)];
}

[[noreturn]] void refuse(const CheckpointInfo& info, const Config& config, const std::string& why,
                         std::string_view remedy) {
  throw ConfigError(fmt::format(
      "run.workers = {}: the run has taken {} steps with {} workers: {}; {}start a new run from "
      "its model with model.init",
      config.workers(), info.step, info.workers, why, remedy));
}

/// Rounds in flight of the worker whose state is in every checkpoint of this process.
std::int64_t rounds_in_flight(const Checkpoint& checkpoint) {
  const std::unique_ptr<StateReader> worker =
      checkpoint.worker(checkpoint.info().only_worker.value_or(0));
  constexpr std::string_view kInFlight = "outer/in_flight";
  return worker->contains(kInFlight) ? worker->integer(kInFlight) : 0;
}

/// The work that is lost with a worker that is left out; all workers have the same windows.
std::string lost_with(const Checkpoint& checkpoint, const Config& config) {
  const std::unique_ptr<StateReader> worker =
      checkpoint.worker(checkpoint.info().only_worker.value_or(0));
  PrefixedStateReader state(*worker, "outer/");
  std::vector<std::string> lost;
  const MethodInfo method = info_of(config.method);
  if (make_codec(outer::codec_of(method, config.outer))->error_feedback()) {
    lost.emplace_back("residuals");
  }
  if (const auto steps = outer::unapplied_steps(state, checkpoint.info().step)) {
    lost.push_back(
        fmt::format("part of steps {} to {}, which no round has taken", steps->first, steps->last));
  }
  return lost.empty() ? "" : fmt::format(", with their {}", fmt::join(lost, " and their "));
}

}  // namespace

std::string worker_names(const Config& config) {
  return fmt::format("{}", fmt::join(site_names(config), ","));
}

std::vector<std::optional<int>> former_workers(const CheckpointInfo& info, const Config& config) {
  const std::vector<std::string> before = names_of(info);
  const std::vector<std::string> now = site_names(config);
  const bool by_name =
      info.workers != config.workers() && std::ranges::any_of(now, [&](const std::string& name) {
        return std::ranges::find(before, name) != before.end();
      });
  std::vector<std::optional<int>> former;
  for (std::size_t m = 0; m < now.size(); ++m) {
    const auto place = by_name ? std::ranges::find(before, now[m]) - before.begin()
                               : static_cast<std::ptrdiff_t>(m);
    const auto worker = static_cast<int>(place);
    former.push_back(worker < info.workers ? std::optional(worker) : std::nullopt);
  }
  return former;
}

void check_workers(const Checkpoint& checkpoint, const Config& config) {
  const CheckpointInfo& info = checkpoint.info();
  if (info.workers == config.workers()) return;
  const MethodInfo method = info_of(config.method);
  if (!method.shared_anchors) {
    refuse(info, config,
           fmt::format("workers of \"{}\" have anchors of their own, so a new one has none to "
                       "start from, and the part of one that leaves is in no other's",
                       config.method),
           "");
  }
  if (config.data.partition == "shards") {
    refuse(info, config,
           "data.partition = \"shards\" would cut the data anew: some samples would come again, "
           "others not in their pass",
           "");
  }
  if (method.round_behind && rounds_in_flight(checkpoint) > 0) {
    refuse(info, config,
           fmt::format("a round of \"{}\" is in flight among the former workers, and its work is "
                       "nowhere else",
                       config.method),
           "go on from a checkpoint without one, such as that of a closing round, or ");
  }
}

std::string workers_text(const Checkpoint& checkpoint, const Config& config) {
  const CheckpointInfo& info = checkpoint.info();
  if (info.workers == config.workers()) return "";
  const std::vector<std::optional<int>> former = former_workers(info, config);
  std::vector<std::string> added;
  for (std::size_t m = 0; m < former.size(); ++m) {
    if (!former[m]) added.push_back(config.sites[m].name);
  }
  std::vector<std::string> left_out;
  for (int k = 0; k < info.workers; ++k) {
    if (std::ranges::find(former, std::optional(k)) == former.end()) {
      left_out.push_back(name_of(info, k));
    }
  }
  std::string text = fmt::format("run.workers = {} ({} before)", config.workers(), info.workers);
  if (!added.empty()) {
    text += fmt::format(": {} new, with the anchors and the optimizer's state of {}",
                        fmt::join(added, ", "), name_of(info, info.only_worker.value_or(0)));
  }
  if (!left_out.empty()) {
    text += fmt::format("{} {} left out{}", added.empty() ? ":" : ";", fmt::join(left_out, ", "),
                        lost_with(checkpoint, config));
  }
  return text;
}

}  // namespace isthmus::app
