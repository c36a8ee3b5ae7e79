// SPDX-License-Identifier: Apache-2.0
#include "app/train/last_windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/train/run_parts.h"
#include "inner/model/model_shape.h"

namespace isthmus::app {
namespace {

/// "the last 4 of 9 steps", or of how many fragments where not all are alike.
std::string steps_text(const Config& config, const std::vector<outer::LastWindow>& windows) {
  const std::int64_t most = outer::longest(windows);
  const std::int64_t total = total_steps(config);
  const bool alike = std::ranges::all_of(
      windows, [&](const outer::LastWindow& window) { return window.steps == most; });
  const std::string of =
      windows.size() == 1 && config.outer.fragments == 1
          ? ""
          : fmt::format(" of {} fragment{}", windows.size(), windows.size() == 1 ? "" : "s");
  if (most == total) return fmt::format("all {} steps{}", total, of);
  return fmt::format("{}the last {} of {} steps{}", alike ? "" : "up to ", most, total, of);
}

/// The next number of steps after which no window of a method without offsets is open.
std::string whole_windows(const Config& config) {
  const std::int64_t H = config.outer.H;
  const std::int64_t total = total_steps(config);
  const std::int64_t below = total / H * H;
  return below == 0 ? fmt::format("train.steps = {}", H)
                    : fmt::format("train.steps = {} or {}", below, below + H);
}

}  // namespace

outer::RunEnd run_end_of(const Config& config, const ModelLayout& layout) {
  const std::vector<Parameter> parameters = parameters_without_values(layout);
  const OuterOptions& options = config.outer;
  const std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  return outer::run_end(config.method, options, static_cast<std::int64_t>(fragments.size()),
                        total_steps(config));
}

outer::RunEnd run_end_of(const Config& config) {
  return run_end_of(config, ModelLayout(model_shape(config.model, config.train.context)));
}

std::int64_t carried_steps(const Config& config, const outer::RunEnd& end) {
  return total_steps(config) - outer::longest(end.uncarried);
}

std::vector<std::string> warnings_about_end(const Config& config, const outer::RunEnd& end) {
  std::vector<std::string> warnings;
  const std::string_view sync = final_sync_name(config.outer.final_sync);
  if (end.rounds == 0 && end.closing.empty() && total_steps(config) > 0) {
    warnings.push_back(fmt::format(
        "outer.H = {} and {} steps with outer.final_sync = \"{}\": the run has no round at all, so "
        "the model that is evaluated and exported is the one that it begins with; set "
        "outer.final_sync = \"full\", or a smaller outer.H",
        config.outer.H, total_steps(config), sync));
  } else if (!end.uncarried.empty()) {
    warnings.push_back(fmt::format(
        "outer.final_sync = \"{}\": no round will carry {} (outer.H = {}), so they are in no "
        "evaluation at the end and in no export; set outer.final_sync = \"full\"{}",
        sync, steps_text(config, end.uncarried), config.outer.H,
        config.outer.fragments == 1 && config.outer.final_sync == FinalSync::kDrain
            ? ", or " + whole_windows(config)
            : ""));
  } else if (end.rounds == 0 && !end.closing.empty()) {
    warnings.push_back(fmt::format(
        "outer.H = {} and {} steps: the closing round is the only one of the run; a smaller "
        "outer.H exchanges earlier",
        config.outer.H, total_steps(config)));
  }
  return warnings;
}

std::string closing_window_text(const Config& config, const outer::RunEnd& end) {
  return end.closing.empty() ? "" : steps_text(config, end.closing);
}

}  // namespace isthmus::app
