// SPDX-License-Identifier: Apache-2.0
// Rules across the keys of [parallel].
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/config_loader.h"

namespace isthmus::config {

// The sizes that the model's own defaults fill in are checked when the mesh is made.
void Loader::check_mesh() {
  if (config.virtual_stages > 1 && config.pipeline_schedule != "interleaved-1f1b") {
    refuse("E-CONFLICT", "parallel.virtual_stages",
           fmt::format("{} with schedule \"{}\"", quoted("parallel.virtual_stages"),
                       config.pipeline_schedule),
           "schedule = \"interleaved-1f1b\" in [parallel]");
  }
  check_zero();
  for (const SiteConfig& site : config.sites) {
    if (config.train.pin && (site.tp > 1 || site.pp > 1 || site.dp > 1)) {
      refuse("E-CONFLICT", "train.pin",
             fmt::format("{} with a mesh of ranks at site {}", quoted("train.pin"), site.name),
             "leave train.pin out");
      return;
    }
  }
}

void Loader::check_zero() {
  if (config.zero == 0) return;
  const auto clash = [&](const std::string& with, const std::string& why, const char* remedy) {
    refuse("E-CONFLICT", "parallel.zero",
           fmt::format("{} with {}: {}", quoted("parallel.zero"), with, why), remedy);
  };
  const MethodInfo* info = method();
  if (info != nullptr && info->forward_only) {
    clash(fmt::format("outer.method = \"{}\"", config.method),
          "it keeps neither gradients nor moments to share out", "leave zero out");
  } else if (config.method == "1bit-adam" || config.method == "01-adam") {
    clash(fmt::format("outer.method = \"{}\"", config.method),
          "it reads and writes Adam's moments, which the ranks would keep",
          "leave zero out, or choose another outer.method");
  }
  if (config.inner.optimizer == "muon") {
    clash("inner.optimizer = \"muon\"",
          "its updates need whole matrices, and ranks have slices cut anywhere",
          "leave zero out, or optimizer = \"adamw\"");
  }
  const bool several = config.pipeline_schedule == "gpipe" || config.pipeline_schedule == "zb-h1";
  const bool shared =
      std::ranges::any_of(config.sites, [](const auto& s) { return s.dp > 1 && s.pp > 1; });
  if (config.zero >= 2 && several && shared) {
    clash(fmt::format("schedule = \"{}\"", config.pipeline_schedule),
          "it has gradients of several micro-batches at once, and zero >= 2 has room for one's",
          "schedule = \"1f1b\" or \"interleaved-1f1b\", or zero = 1");
  }
}

}  // namespace isthmus::config
