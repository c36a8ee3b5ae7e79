// SPDX-License-Identifier: Apache-2.0
#include "app/train/checkpoint_room.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "core/base/units.h"
#include "inner/model/optimizer.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"

namespace isthmus::app {

std::uint64_t checkpoint_bytes(const Config& config, const TrainingPlan& plan,
                               const ModelLayout& layout, std::optional<WorkerId> only) {
  const std::int64_t moments =
      forward_only(config) ? 0 : InnerOptimizer::moment_values(config.inner, layout);
  return checkpoint_bytes(config, plan, layout.elements(), moments, only);
}

CheckpointRoom checkpoint_room(const Storage& storage, const Config& config,
                               const TrainingPlan& plan, const ModelLayout& layout,
                               const CheckpointPlace& place) {
  return checkpoint_room(storage, config, plan, checkpoint_bytes(config, plan, layout, place.only),
                         place);
}

void check_room_of_sites(const Storage& storage, const Config& config,
                         std::span<const WorkerId> sites, const std::filesystem::path& out,
                         bool goes_on) {
  const auto human = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
  const ModelLayout layout(model_shape(config.model, config.train.context));
  std::map<std::uint64_t, std::uint64_t>
      needed;  // by free bytes, which are equal for all folders of one disk
  for (const WorkerId site : sites) {
    const TrainingPlan plan = make_training_plan(config, kernels::usable_cores(), site);
    const std::string& name = config.sites[static_cast<std::size_t>(site.value())].name;
    const CheckpointRoom room = checkpoint_room(
        storage, config, plan, layout, {.out = out / name, .only = site, .goes_on = goes_on});
    needed[room.free] += room.needed();
  }
  for (const auto& [free, bytes] : needed) {
    if (bytes <= free) continue;
    throw SystemError(fmt::format(
        "'{}': the checkpoints of {} sites take {} together ({} bytes; ckpt.keep = {}), and {} ({} "
        "bytes) are free there: free space, lower ckpt.keep, or give --out on another disk",
        out.string(), sites.size(), human(bytes), bytes, config.ckpt.keep, human(free), free));
  }
}

}  // namespace isthmus::app
