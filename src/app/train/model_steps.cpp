// SPDX-License-Identifier: Apache-2.0
#include "app/train/model_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/train/last_windows.h"
#include "core/state/state_snapshot.h"
#include "isthmus/errors.h"

namespace isthmus::app {

std::optional<outer::UnappliedSteps> unapplied_steps_of(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const std::unique_ptr<StateReader> worker = checkpoint.worker(info.only_worker.value_or(0));
  PrefixedStateReader state(*worker, "outer/");
  return outer::unapplied_steps(state, info.step);
}

std::string unapplied_text_at(const Config& config, std::int64_t step) {
  Config until = config;
  until.outer.final_sync = FinalSync::kNone;
  until.train.steps = step;
  const outer::RunEnd end = run_end_of(until);
  const std::int64_t missing =
      std::max(outer::longest(
                   end.uncarried),  // of 01-adam: the residuals that its closing round would carry
               outer::longest(end.closing));
  if (missing == 0 && end.own_part_only == 0) return "";
  const bool in_part = end.own_part_only > 0;
  return outer::unapplied_text({.first = step - missing - end.own_part_only + 1,
                                .last = step,
                                .some_fragments = end.fragments > 1,
                                .in_part = in_part});
}

std::string unapplied_text_of_init(const Storage& storage, const Config& config) {
  if (config.model.init.empty()) return "";
  const std::filesystem::path folder = config.locate(config.model.init);
  if (storage.kind(folder / "state.json") != FileKind::kFile) return "";
  try {
    const auto missing = unapplied_steps_of(Checkpoint::open(storage, folder));
    return missing ? fmt::format("model.init = \"{}\": {}", config.model.init.string(),
                                 outer::unapplied_text(*missing))
                   : "";
  } catch (const SystemError&) {  // the model alone was copied, and is read by itself
    return "";
  }
}

}  // namespace isthmus::app
