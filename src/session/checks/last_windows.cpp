// SPDX-License-Identifier: Apache-2.0
#include "session/checks/last_windows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "session/run/begun_run.h"

namespace isthmus::app {
namespace {

/// "the last 4 of 9 steps"; of how many fragments, where not all are alike.
std::string steps_text(const Config& config, const outer::RunEnd& end,
                       const std::vector<outer::LastWindow>& windows) {
  const std::int64_t most = outer::longest(windows);
  const std::int64_t total = total_steps(config);
  const bool alike = std::ranges::all_of(
      windows, [&](const outer::LastWindow& window) { return window.steps == most; });
  const std::string of = end.fragments == 1 ? ""
                                            : fmt::format(" of {} fragment{}", windows.size(),
                                                          windows.size() == 1 ? "" : "s");
  const char* const at_most = alike ? "" : "up to ";
  if (most == total) return fmt::format("{}all {} steps{}", at_most, total, of);
  return fmt::format("{}the last {} of {} steps{}", at_most, most, total, of);
}

bool carries_every_step(const outer::RunEnd& end) {
  return end.uncarried.empty() && end.own_part_only == 0;
}

/// ", or train.steps = 5 or 10": the next lengths at which every step is carried; empty: there are
/// none.
std::string lengths_text(const Config& config, const outer::RunEnd& end) {
  constexpr std::int64_t kFarthest = 100'000;  // of a search that a command waits for
  const std::int64_t total = total_steps(config);
  const std::int64_t batch = config.train.steps ? 1 : config.train.global_batch_tokens;
  std::vector<std::int64_t> lengths;
  for (const std::int64_t way : {-1, 1}) {
    for (std::int64_t far = 1; far <= std::min(config.outer.H, kFarthest); ++far) {
      const std::int64_t steps = total + way * far;
      if (steps < 1) break;
      if (!carries_every_step(outer::run_end(config.method, config.outer, end.fragments, steps))) {
        continue;
      }
      lengths.push_back(steps * batch);
      break;
    }
  }
  if (lengths.empty()) return "";
  return fmt::format(", or {} = {}", config.train.steps ? "train.steps" : "train.tokens",
                     fmt::join(lengths, " or "));
}

/// The advice about steps that are lost. A resumed run keeps the value of its start.
std::string remedy(const Config& config, const outer::RunEnd& end) {
  const auto origin = config.origins.find("outer.final_sync");
  if (origin != config.origins.end() && origin->second.text.starts_with(kAsBegun)) {
    return "this run keeps the value it was begun with; a new run from its model (model.init) "
           "trains on";
  }
  return fmt::format("set outer.final_sync = \"full\"{}", lengths_text(config, end));
}

}  // namespace

outer::RunEnd run_end_of(const Config& config, std::span<const Parameter> parameters) {
  const OuterOptions& options = config.outer;
  const std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  outer::RunEnd end = outer::run_end(
      config.method, options, static_cast<std::int64_t>(fragments.size()), total_steps(config));
  if (config.workers() == 1) end.own_part_only = 0;  // it is all there is
  return end;
}

std::int64_t carried_steps(const Config& config, const outer::RunEnd& end) {
  return total_steps(config) - outer::longest(end.uncarried) - end.own_part_only;
}

std::vector<std::string> warnings_about_end(const Config& config, const outer::RunEnd& end) {
  std::vector<std::string> warnings;
  const std::string_view sync = final_sync_name(config.outer.final_sync);
  if (end.rounds == 0 && end.closing.empty() && total_steps(config) > 0) {
    warnings.push_back(fmt::format(
        "outer.H = {} and {} steps with outer.final_sync = \"{}\": {}, so the model that is "
        "evaluated and exported is the one that it begins with; {}",
        config.outer.H, total_steps(config), sync,
        end.sent == 0 ? "the run has no round at all"
                      : "every round is dropped before it is applied",
        remedy(config, end)));
  } else if (!end.uncarried.empty()) {
    warnings.push_back(fmt::format(
        "outer.final_sync = \"{}\": no round will carry {} (outer.H = {}), so they are in no "
        "evaluation at the end and in no export; {}",
        sync, steps_text(config, end, end.uncarried), config.outer.H, remedy(config, end)));
  } else if (end.rounds == 0 && !end.closing.empty()) {
    warnings.push_back(fmt::format(
        "outer.H = {} and {} steps: the closing round is the only one of the run; a smaller "
        "outer.H exchanges earlier",
        config.outer.H, total_steps(config)));
  }
  if (end.own_part_only > 0) {
    warnings.push_back(fmt::format(
        "outer.final_sync = \"{}\": the last round of \"{}\" is not awaited, so of its {} steps "
        "each worker applies its own share alone, one of {}; {}",
        sync, config.method, end.own_part_only, config.workers(), remedy(config, end)));
  }
  for (const auto& [key, ramp, what] :
       {std::tuple{"outer.lr_warmup", config.outer.lr_ramp, "outer.lr"},
        {"outer.momentum_warmup", config.outer.momentum_ramp, "outer.momentum"}}) {
    warnings.push_back(short_of_warmup(key, ramp.warmup, total_steps(config), what));
  }
  std::erase(warnings, "");
  return warnings;
}

std::string short_of_warmup(const char* key, std::int64_t warmup, std::int64_t total,
                            const char* peak) {
  if (total <= 0 || warmup <= total) return "";
  const double share = static_cast<double>(total) / static_cast<double>(warmup);
  return fmt::format(
      "{} = {} and {} steps: the run ends before {} has its value, with {:.3g} of it at most; "
      "shorten {} (\"10%\" is a share of the run), or train for more steps",
      key, warmup, total, peak, share, key);
}

std::string closing_window_text(const Config& config, const outer::RunEnd& end) {
  return end.closing.empty() ? "" : steps_text(config, end, end.closing);
}

}  // namespace isthmus::app
