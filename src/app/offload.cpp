// SPDX-License-Identifier: Apache-2.0
#include "app/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/run_parts.h"
#include "core/units.h"
#include "inner/model_cost.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kFloatBytes = 4;

std::filesystem::path folder_of(const Config& config) {
  return std::filesystem::absolute(config.locate(config.train.offload)).lexically_normal();
}

std::int64_t outer_bytes(const Config& config, const ModelLayout& layout) {
  return outer_state_values(config.method, config.outer) * layout.elements() * kFloatBytes;
}

/// What a pass has in memory of files: two layers, the head, two blocks of the optimizer's pass;
/// weights and gradients.
std::int64_t window_bytes(const ModelLayout& layout) {
  std::int64_t layer = 0;
  for (std::int64_t l = 0; l < layout.shape().layers; ++l) {
    layer = std::max(layer, layout.layer_elements(l).size());
  }
  const std::int64_t head = layout.tensors()[layout.head()].elements.size();
  return 2 * kFloatBytes * (2 * layer + head);
}

}  // namespace

std::uint64_t offload_bytes(const Config& config, const TrainingPlan& plan,
                            const ModelLayout& layout, std::optional<Rank> only) {
  const std::int64_t parameters = layout.elements() * kFloatBytes;
  std::int64_t bytes = 0;
  const int first = only ? only->value() : 0;
  const int end = only ? first + 1 : plan.workers;
  for (int m = first; m < end; ++m) {
    const LanguageModelOptions options = language_model_options(config, plan, Rank(m));
    const MemoryEstimate memory = loop_memory(layout, options);
    const std::int64_t outer = outer_bytes(config, layout);
    bytes += memory.parameters + memory.gradients + memory.moments + outer;
    if (options.mesh.ranks() > 1) bytes += parameters;  // other weights, for evaluations
    // Those who come first to a checkpoint lay down copies, and one of them the model.
    if (m > first) bytes += memory.parameters + memory.moments + outer;
    if (m == first && end > first + 1) bytes += parameters;
  }
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t memory_beside_offload(const Config& config, const TrainingPlan& plan,
                                    const ModelLayout& layout) {
  std::int64_t bytes = 0;
  for (int m = 0; m < plan.workers; ++m) {
    const MemoryEstimate memory =
        loop_memory(layout, language_model_options(config, plan, Rank(m)));
    bytes += memory.activations + memory.logits + memory.update + window_bytes(layout);
  }
  return static_cast<std::uint64_t>(bytes);
}

void check_offload(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                   std::optional<Rank> only) {
  if (config.train.offload.empty()) return;
  if (forward_only(config)) {
    throw ConfigError(fmt::format(
        "train.offload = \"{}\": method {} trains by forward passes and keeps weights alone, which "
        "it reads whole in each; remove train.offload, or choose another outer.method",
        config.train.offload, config.method));
  }
  if (config.zero > 0) {
    throw ConfigError(fmt::format(
        "train.offload = \"{}\": with parallel.zero = {} ranks keep slices of the training state, "
        "which lie in memory; remove one of the two",
        config.train.offload, config.zero));
  }
  const std::filesystem::path folder = folder_of(config);
  std::filesystem::path there = folder;  // or what of its path is there already
  while (!std::filesystem::exists(there) && there.has_relative_path()) there = there.parent_path();
  if (!std::filesystem::is_directory(there)) {
    throw SystemError(fmt::format("train.offload = \"{}\": {} is not a folder; name another path",
                                  config.train.offload, there.string()));
  }
  const std::uint64_t needed = offload_bytes(config, plan, layout, only);
  const std::uint64_t free = std::filesystem::space(there).available;
  if (needed > free) {
    throw SystemError(
        fmt::format("train.offload = \"{}\": the training state takes {} of files ({} bytes), and "
                    "{} ({} bytes) are free there: free space, name a folder on another disk, or "
                    "make the model smaller",
                    config.train.offload, human_bytes(static_cast<double>(needed)), needed,
                    human_bytes(static_cast<double>(free)), free));
  }
}

std::unique_ptr<StateMemory> make_state_memory(const Config& config, Rank rank, EventSink* events,
                                               const Clock* clock) {
  if (config.train.offload.empty()) return nullptr;
  return std::make_unique<StateMemory>(StateMemory::Options{
      .folder = folder_of(config), .worker = rank, .events = events, .clock = clock});
}

}  // namespace isthmus::app
