// SPDX-License-Identifier: Apache-2.0
#include "app/train/memory_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "app/train/config_to_options.h"
#include "app/train/site_lanes.h"
#include "config/schema/device_request.h"
#include "config/schema/recompute.h"
#include "core/base/check.h"
#include "core/base/units.h"
#include "inner/loop/model_cost.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/mesh_rules.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/place/lane_memory.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kFloatBytes = 4;

/// The number after `name` and blanks in the first line that begins with it; an empty name: at the
/// start of the file. Nothing for a file or line that is not there, or for "max".
std::optional<std::uint64_t> number_in(const std::filesystem::path& file, std::string_view name) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    if (!line.starts_with(name)) continue;
    const std::size_t at = line.find_first_not_of(" \t", name.size());
    if (at == std::string::npos) return std::nullopt;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), number);
    if (error != std::errc()) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

std::uint64_t kibibytes(const std::filesystem::path& root, std::string_view name) {
  return number_in(root / "proc/meminfo", name).value_or(0) * 1024;
}

std::uint64_t kibibytes_of_self(const std::filesystem::path& root, std::string_view name) {
  return number_in(root / "proc/self/status", name).value_or(0);
}

/// Of this process in the hierarchy of the memory controller ("memory"), or in the unified one
/// ("").
std::optional<std::filesystem::path> group_of(const std::filesystem::path& root,
                                              std::string_view controller) {
  std::ifstream stream(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(stream, line)) {  // number:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (std::string_view(line).substr(first + 1, second - first - 1) != controller) continue;
    const std::string path = line.substr(second + 1);
    if (path.find("..") != std::string::npos) return std::nullopt;  // outside of the visible tree
    return std::filesystem::path(path).relative_path();
  }
  return std::nullopt;
}

void take_lower(MemoryLimit& limit, std::uint64_t bytes, std::string what) {
  if (limit.bytes != 0 && bytes >= limit.bytes) return;
  limit.bytes = bytes;
  limit.what = std::move(what);
}

/// With as much swap on top as a group may have.
std::uint64_t with_swap(std::uint64_t bytes, std::uint64_t swap) {
  return bytes > std::numeric_limits<std::uint64_t>::max() - swap ? bytes : bytes + swap;
}

}  // namespace

MemoryLimit memory_limit(const std::filesystem::path& root) {
  MemoryLimit limit;
  const std::uint64_t swap = kibibytes(root, "SwapTotal:");
  const std::uint64_t memory = kibibytes(root, "MemTotal:");
  if (memory == 0) return limit;
  take_lower(limit, memory + swap, "this machine has");
  const std::filesystem::path groups = root / "sys/fs/cgroup";
  if (const auto group = group_of(root, ""); group) {  // version 2: every group above limits too
    for (std::filesystem::path at = *group;; at = at.parent_path()) {
      if (const auto most = number_in(groups / at / "memory.max", ""); most) {
        const auto own_swap = number_in(groups / at / "memory.swap.max", "");
        take_lower(limit, with_swap(*most, std::min(swap, own_swap.value_or(swap))),
                   fmt::format("control group /{} allows", at.generic_string()));
      }
      if (at.empty()) break;
    }
  }
  if (const auto group = group_of(root, "memory"); group) {  // version 1: the sum is in the file
    std::filesystem::path at = groups / "memory" / *group;
    std::error_code unseen;  // a file that cannot be read counts as absent
    if (!std::filesystem::exists(at / "memory.stat", unseen))
      at = groups / "memory";  // a container
    const auto most = number_in(at / "memory.stat", "hierarchical_memory_limit ");
    const auto both = number_in(at / "memory.stat", "hierarchical_memsw_limit ");
    if (most) {
      const std::uint64_t bytes = with_swap(*most, swap);
      take_lower(limit, both ? std::min(*both, bytes) : bytes,
                 fmt::format("control group /{} allows", group->generic_string()));
    }
  }
  return limit;
}

std::uint64_t peak_bytes(const std::filesystem::path& root) {
  return kibibytes_of_self(root, "VmHWM:") * 1024;
}

std::uint64_t anonymous_bytes(const std::filesystem::path& root) {
  // The counts of proc/self/status lag behind by some pages a thread.
  const auto exact = number_in(root / "proc/self/smaps_rollup", "Anonymous:");
  return exact.value_or(kibibytes_of_self(root, "RssAnon:")) * 1024;
}

namespace {
/// The part of a worker's anchors that process `rank` of its site holds. With lanes: the lanes and
/// their memory while an outer gradient is encoded; or, on the first process, all anchors while
/// they are there.
std::int64_t anchor_bytes(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                          WorkerId worker, int rank) {
  if (outer_state_values(config.method, config.outer) == 0) return 0;
  const std::optional<outer::LaneDemand> lanes = lanes_of(config, layout);
  if (!lanes || plan.processes == nullptr) return layout.elements() * kFloatBytes;
  const outer::LaneMemory memory =
      outer::lane_memory(*lanes, plan.mesh(worker).shape.ranks(), rank);
  return memory.values * kFloatBytes + memory.scratch();
}
}  // namespace

CertainMemory certain_memory(const Config& config, const TrainingPlan& plan,
                             const ModelLayout& layout) {
  CertainMemory certain;
  if (plan.device.on_cuda()) return certain;
  for (const WorkerId rank : plan.workers_here()) {
    const MemoryEstimate memory = loop_memory(layout, language_model_options(config, plan, rank));
    certain.activations += memory.activations + memory.logits;
    if (!config.train.offload.empty()) continue;
    certain.state += memory.parameters + memory.gradients + memory.moments + memory.shares;
    certain.state += anchor_bytes(config, plan, layout, rank, 0);
  }
  return certain;
}

CertainMemory certain_memory_of_rank(const Config& config, const TrainingPlan& plan,
                                     const ModelLayout& layout, WorkerId worker, int rank) {
  const MeshOptions options = mesh_options(language_model_options(config, plan, worker));
  ISTHMUS_CHECK(options.processes, rank);
  const std::int64_t stored = MeshRank::stored_bytes(layout, options, rank, true);
  CertainMemory certain;
  certain.activations = MeshRank::bytes(layout, options, rank, true) - stored;
  if (mesh_position(options.mesh, rank).pp + 1 == options.mesh.pp) {
    certain.activations += mesh_memory(layout, options.inner, options).logits;
  }
  if (config.train.offload.empty()) certain.state = stored;
  if (outer_is_on_ranks(config)) {
    certain.state += anchor_bytes(config, plan, layout, worker, rank);
  }
  return certain;
}

namespace {

/// The owner of the bytes: this process, or a process that is a rank of a worker's mesh.
struct Whose {
  std::optional<WorkerId> worker;
  int rank = 0;
};

CertainMemory certain_of(const Whose& whose, const Config& config, const TrainingPlan& plan,
                         const ModelLayout& layout) {
  return whose.worker ? certain_memory_of_rank(config, plan, layout, *whose.worker, whose.rank)
                      : certain_memory(config, plan, layout);
}

/// The settings that lower the need and work at every site of the file, with the bytes that are
/// then certain.
class Remedies {
 public:
  Remedies(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
           const Whose& whose, const MemoryLimit& limit)
      : config_(config),
        plan_(plan),
        layout_(layout),
        whose_(whose),
        limit_(limit),
        now_(certain_of(whose, config, plan, layout).total()) {}

  [[nodiscard]] std::vector<std::string> all(bool sites_can_part) {
    const bool trains = !forward_only(config_);
    if (trains && config_.train.offload.empty()) {
      Config then = config_;
      then.train.offload = "DIR";
      add("train.offload = \"DIR\"", then, plan_);
    }
    if (trains && !takes_adam_moments(config_) && config_.inner.optimizer != "muon") share_out();
    for (const Recompute more : {Recompute::kSelective, Recompute::kFull}) {
      if (!trains || more <= config_.train.recompute || splits_backward_passes()) continue;
      Config then = config_;
      then.train.recompute = more;
      add(fmt::format("train.recompute = \"{}\"", recompute_name(more)), then, plan_);
    }
    cut_samples();
    if (sites_can_part && plan_.workers_in_process > 1) part_sites();
    all_.emplace_back("a smaller model or train.global_batch");
    return std::move(all_);
  }

 private:
  void add(const std::string& text, const Config& then, const TrainingPlan& with) {
    add(text, certain_of(whose_, then, with, layout_).total());
  }
  void add(const std::string& text, std::uint64_t bytes) {
    if (bytes >= now_) return;
    all_.push_back(fmt::format("{} (then {})", text, human_bytes(static_cast<double>(bytes))));
  }

  /// The smallest setting that fits, since a larger one sends more; otherwise the one that saves
  /// most.
  void share_out() {
    const PipelineKind schedule = parse_pipeline_kind(config_.pipeline_schedule);
    const int most = one_gradient_at_a_time(schedule) ? 3 : 1;
    int best = config_.zero;
    std::uint64_t least = now_;
    for (int zero = config_.zero + 1; zero <= most && least > limit_.bytes; ++zero) {
      Config then = config_;
      then.zero = zero;
      const std::uint64_t bytes = certain_of(whose_, then, plan_, layout_).total();
      if (bytes >= least) continue;
      best = zero;
      least = bytes;
    }
    add(fmt::format("parallel.zero = {}", best), least);
  }

  /// True if some site splits backward passes, which keeps what recomputation would drop.
  [[nodiscard]] bool splits_backward_passes() const {
    return parse_pipeline_kind(config_.pipeline_schedule) == PipelineKind::kZbH1 &&
           std::ranges::any_of(plan_.meshes, [](const SiteMesh& m) { return m.shape.pp > 1; });
  }

  /// The key holds for all sites: the largest number of parts into which the samples of each site's
  /// ranks divide, below numbers whose order needs extra memory.
  void cut_samples() {
    std::int64_t parts = 0;
    for (const SiteMesh& mesh : plan_.meshes) {
      parts = std::gcd(parts, plan_.worker_samples / mesh.shape.dp);
    }
    constexpr std::int64_t kMostParts = 1024;
    const std::int64_t samples = parts;
    parts = std::min(parts, kMostParts);
    while (parts > 1 && samples % parts != 0) --parts;
    TrainingPlan with = plan_;
    for (SiteMesh& mesh : with.meshes) {
      if (config_.virtual_stages > 1 && parts % mesh.shape.pp != 0) return;
      mesh.micro_batches = parts;
    }
    add(fmt::format("parallel.micro_batches = {}", parts), config_, with);
  }

  /// The need of the largest site after that.
  void part_sites() {
    TrainingPlan alone = plan_;
    alone.workers_in_process = 1;
    std::uint64_t most = 0;
    for (const WorkerId rank : plan_.workers_here()) {
      alone.first_worker = rank.value();
      most = std::max(most, certain_memory(config_, alone, layout_).total());
    }
    add("a machine for each site (mpirun, or train --site)", most);
  }

  const Config& config_;
  const TrainingPlan& plan_;
  const ModelLayout& layout_;
  const Whose whose_;
  const MemoryLimit& limit_;
  const std::uint64_t now_;
  std::vector<std::string> all_;
};

/// `what` certainly needs more memory than there is.
void refuse(const std::string& what, const CertainMemory& certain, const MemoryLimit& limit,
            const std::vector<std::string>& remedies) {
  throw SystemError(fmt::format(
      "{} is sure to need {} ({} bytes: training state {}, activations {}), and {} {} ({} "
      "bytes, swap included): it would be killed; lower it by {}",
      what, human_bytes(static_cast<double>(certain.total())), certain.total(),
      human_bytes(static_cast<double>(certain.state)),
      human_bytes(static_cast<double>(certain.activations)), limit.what,
      human_bytes(static_cast<double>(limit.bytes)), limit.bytes, fmt::join(remedies, ", or ")));
}

bool fits(const CertainMemory& certain, const MemoryLimit& limit) {
  return limit.bytes == 0 || certain.total() <= limit.bytes;
}

}  // namespace

void check_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                  const MemoryLimit& limit, bool sites_can_part) {
  const CertainMemory certain = certain_memory(config, plan, layout);
  if (fits(certain, limit)) return;
  refuse("this run", certain, limit, Remedies(config, plan, layout, {}, limit).all(sites_can_part));
}

void check_rank_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                       WorkerId worker, int rank, const MemoryLimit& limit) {
  const CertainMemory certain = certain_memory_of_rank(config, plan, layout, worker, rank);
  if (fits(certain, limit)) return;
  const Whose whose{.worker = worker, .rank = rank};
  refuse(fmt::format("rank {} of the mesh of site {}", rank,
                     config.sites[static_cast<std::size_t>(worker.value())].name),
         certain, limit, Remedies(config, plan, layout, whose, limit).all(false));
}

}  // namespace isthmus::app
