// SPDX-License-Identifier: Apache-2.0
#include "app/train/offload.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "app/train/config_to_options.h"
#include "core/base/units.h"
#include "inner/loop/model_cost.h"
#include "inner/model/optimizer.h"
#include "isthmus/errors.h"
#include "plan/prediction.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kBytesOfFloat = 4;

std::filesystem::path folder_of(const Config& config) {
  return std::filesystem::absolute(config.locate(config.train.offload)).lexically_normal();
}

constexpr std::int64_t kInFile = std::int64_t{1}
                                 << 20;  // bytes, as core/state/state_memory.cpp has it

/// Of the outer loop of one worker.
struct OuterFiles {
  std::int64_t bytes = 0;
  std::int64_t passing = 0;  // for the length of an outer step
  std::int64_t count = 0;
};

OuterFiles outer_files(const Config& config, const TrainingPlan& plan, const ModelLayout& layout) {
  const PredictionInput input =
      prediction_input(config.method, config.outer, parameters_without_values(layout), plan.workers,
                       plan.total_steps);
  // A residual is kept as it was before an exchange until that has counted.
  const std::int64_t values =
      outer_state_values(config.method, config.outer) + (input.codec->error_feedback() ? 1 : 0);
  OuterFiles files{.bytes = values * layout.elements() * kBytesOfFloat};
  for (const PlannedFragment& fragment : input.fragments) {
    const std::int64_t bytes = fragment.elements * kBytesOfFloat;
    // An anchor as it was, where a contribution can be lost.
    if (plan.workers > 1) files.passing = std::max(files.passing, bytes);
    if (bytes >= kInFile) files.count += values;
  }
  if (config.method == "01-adam") {  // by tensor, whatever it sends
    files.count = values * static_cast<std::int64_t>(layout.tensors().size());
  }
  return files;
}

/// Of a mesh, those in this process.
int ranks_here(const LanguageModelOptions& options) {
  return options.processes != nullptr ? 1 : options.mesh.ranks();
}

/// Open files of the workers in this process at a time, no fewer than there will be.
std::int64_t file_count(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                        std::optional<WorkerId> only) {
  const std::int64_t outer = outer_files(config, plan, layout).count;
  const std::int64_t tensors = std::ranges::count_if(layout.tensors(), [](const auto& tensor) {
    return tensor.elements.size() * kBytesOfFloat >= kInFile;
  });
  std::int64_t inner = 4;               // weights, gradients, moments, those that a mesh gathers
  constexpr std::int64_t kShare = 3;    // the first three, of a rank's virtual stage
  constexpr std::int64_t kPassing = 2;  // of an outer step
  constexpr std::int64_t kMoments = 2;  // in a checkpoint, by tensor at most
  const int workers = only ? 1 : plan.workers;
  const auto ranks_of = [&](int m) {
    const LanguageModelOptions options = language_model_options(config, plan, WorkerId(m));
    return options.mesh.ranks() == 1 ? 0 : ranks_here(options) * options.virtual_stages;
  };
  std::int64_t most = 0;
  for (int m = 0; m < plan.workers; ++m) most = std::max<std::int64_t>(most, ranks_of(m));
  if (most > 0) inner += kShare * most + kMoments;  // collected for a checkpoint
  const std::int64_t copies = (1 + kMoments) * tensors + outer;
  return workers * (inner + kPassing + outer) + (workers - 1) * copies +
         (workers > 1 ? tensors : 0);
}

/// Each array has an open file. THROWS: SystemError when this process may not have as many.
void allow_files(const Config& config, std::int64_t count) {
  constexpr std::int64_t kOthers = 256;  // of the run's folder, its links, its data
  const auto needed = static_cast<rlim_t>(count + kOthers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = limit.rlim_max;
  if (limit.rlim_max >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw SystemError(fmt::format(
      "train.offload = \"{}\": the training state takes {} open files, its copies for a "
      "checkpoint among them, and this process may have {}: raise the hard limit "
      "(ulimit -Hn), run fewer workers in one process, or set fewer outer.fragments",
      config.train.offload, count, limit.rlim_max));
}

/// The moments of all values, wherever they are; a checkpoint holds them.
std::int64_t moments_of(const ModelLayout& layout, const LanguageModelOptions& options) {
  return InnerOptimizer::moment_values(options.inner, layout) * kBytesOfFloat;
}

/// The memory of files that a pass uses: two layers, the head, two blocks of the optimizer's pass;
/// weights and gradients.
std::int64_t window_bytes(const ModelLayout& layout) {
  std::int64_t layer = 0;
  for (std::int64_t l = 0; l < layout.shape().layers; ++l) {
    layer = std::max(layer, layout.layer_elements(l).size());
  }
  const std::int64_t head = layout.tensors()[layout.head()].elements.size();
  return 2 * kBytesOfFloat * (2 * layer + head);
}

/// Calls `add(m, options, memory)` for worker `only`, or for all workers, in order.
template <typename Add>
void for_workers(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                 std::optional<WorkerId> only, const Add& add) {
  const int first = only ? only->value() : 0;
  const int end = only ? first + 1 : plan.workers;
  for (int m = first; m < end; ++m) {
    const LanguageModelOptions options = language_model_options(config, plan, WorkerId(m));
    add(m, options, loop_memory(layout, options));
  }
}

}  // namespace

std::uint64_t offload_bytes(const Config& config, const TrainingPlan& plan,
                            const ModelLayout& layout, std::optional<WorkerId> only) {
  const std::int64_t parameters = layout.elements() * kBytesOfFloat;
  const OuterFiles outer = outer_files(config, plan, layout);
  std::int64_t bytes = 0;
  const int first = only ? only->value() : 0;
  const auto add = [&](int m, const LanguageModelOptions& options, const MemoryEstimate& memory) {
    bytes += memory.parameters + memory.gradients + memory.moments + memory.shares + outer.bytes +
             outer.passing;
    if (options.mesh.ranks() > 1) bytes += parameters;  // other weights, for evaluations
    // State that ranks share out is collected for a checkpoint.
    if (options.mesh.dp > 1 && options.zero > 0) bytes += moments_of(layout, options);
    // The workers that come first to a checkpoint write copies, and one of them the model.
    if (m > first) bytes += memory.parameters + moments_of(layout, options) + outer.bytes;
    if (m == first && !only && plan.workers > 1) bytes += parameters;
  };
  for_workers(config, plan, layout, only, add);
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t memory_beside_offload(const Config& config, const TrainingPlan& plan,
                                    const ModelLayout& layout, std::optional<WorkerId> only) {
  std::int64_t bytes = 0;
  const auto add = [&](int, const LanguageModelOptions& options, const MemoryEstimate& memory) {
    bytes += memory.activations + memory.logits + memory.update + window_bytes(layout);
    if (options.mesh.ranks() == 1) return;
    bytes -= memory.parameters;  // of the update: the copy for evaluations lies in a file
    bytes += ranks_here(options) * window_bytes(layout);  // each has one on its share
  };
  for_workers(config, plan, layout, only, add);
  return static_cast<std::uint64_t>(bytes);
}

void check_offload(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                   std::optional<WorkerId> only) {
  if (config.train.offload.empty()) return;
  if (forward_only(config)) {
    throw ConfigError(fmt::format(
        "train.offload = \"{}\": method {} trains by forward passes and keeps weights alone, which "
        "it reads whole in each; remove train.offload, or choose another outer.method",
        config.train.offload, config.method));
  }
  const std::filesystem::path folder = folder_of(config);
  std::filesystem::path there = folder;  // or the part of its path that exists already
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
  allow_files(config, file_count(config, plan, layout, only));
}

std::unique_ptr<StateMemory> make_state_memory(const Config& config, WorkerId rank,
                                               EventSink* events, const Clock* clock) {
  if (config.train.offload.empty()) return nullptr;
  return std::make_unique<StateMemory>(StateMemory::Options{
      .folder = folder_of(config), .worker = rank, .events = events, .clock = clock});
}

}  // namespace isthmus::app
