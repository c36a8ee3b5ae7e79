// SPDX-License-Identifier: Apache-2.0
#include "app/train/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "app/train/config_to_options.h"
#include "app/train/matmul_choices.h"
#include "app/train/training_plan.h"
#include "config/schema/device_request.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/cuda_mesh.h"
#include "inner/cuda/device_check.h"
#include "inner/cuda/device_product.h"
#include "inner/loop/lora_loop.h"
#include "isthmus/errors.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/matmul_table.h"
#include "outer/place/outer_placement.h"
#include "transport/collectives/nccl_communicator.h"

namespace isthmus::app {
namespace {

constexpr int kOldest = 8;  // compute capability that kernels are compiled for

std::string name_of(const cuda::DeviceInfo& device) {
  return fmt::format("cuda:{}", device.ordinal);
}

/// Why no run can use the devices of this machine: a driver or a library does not fit this build.
std::string environment_fault() {
  if (std::string fault = cuda::driver_fault(); !fault.empty()) return fault;
  return cuda::unavailable().empty() ? device_products_missing() : "";
}

/// The devices that `request` means. THROWS: ConfigError where there is none, SystemError for an
/// environment_fault.
std::vector<cuda::DeviceInfo> devices_of(const Config& config, const DeviceRequest& request) {
  const auto refuse = [&](const std::string& why) {
    return ConfigError(fmt::format("train.device = \"{}\": {}; set it to \"cpu\" or \"auto\"",
                                   config.train.device, why));
  };
  if (const std::string fault = environment_fault(); !fault.empty()) {
    throw SystemError(fmt::format("train.device = \"{}\": {}", config.train.device, fault));
  }
  if (const std::string why_not = no_device_here(); !why_not.empty()) throw refuse(why_not);
  std::vector<cuda::DeviceInfo> devices = cuda::devices();
  if (request.ordinal) {
    std::erase_if(devices, [&](const auto& each) { return each.ordinal != *request.ordinal; });
    if (devices.empty()) {
      throw refuse(fmt::format("this process may use devices 0 to {}", cuda::devices().size() - 1));
    }
  }
  return devices;
}

/// A rank of a worker in this process, which is the whole worker where there is no mesh.
struct RankHere {
  WorkerId worker;
  int rank;
};
std::vector<RankHere> ranks_here(const TrainingPlan& plan) {
  std::vector<RankHere> all;
  for (const WorkerId worker : plan.workers_here()) {
    for (int i = 0; i < plan.mesh(worker).shape.ranks(); ++i) all.push_back({worker, i});
  }
  return all;
}

/// THROWS: ConfigError if a mesh has more ranks than there are devices. A single requested device
/// has all ranks.
void check_ranks(const Config& config, const TrainingPlan& plan, const DeviceRequest& request,
                 const DeviceChoice& choice) {
  for (const WorkerId worker : plan.workers_here()) {
    const MeshShape& shape = plan.mesh(worker).shape;
    const int ranks = shape.ranks();
    const std::string mesh = fmt::format(
        "train.device = \"{}\" with a mesh of {} x {} x {} ranks at site {}", config.train.device,
        shape.tp, shape.pp, shape.dp, config.sites[static_cast<std::size_t>(worker.value())].name);
    if (ranks > 1 && plan.processes != nullptr) {
      throw ConfigError(mesh +
                        ": ranks on devices are threads of one process; start it without mpirun, "
                        "or set train.device = \"cpu\"");
    }
    if (request.ordinal || ranks <= static_cast<int>(choice.devices.size())) continue;
    throw ConfigError(
        fmt::format("{}: each rank needs one device, and this process may use {}; make "
                    "tp, pp or dp smaller, or set train.device = \"cpu\"",
                    mesh, choice.devices.size()));
  }
}

/// THROWS: ConfigError where ranks of a mesh would part, each on another kind of device.
void check_kinds(const Config& config, const TrainingPlan& plan, const DeviceChoice& choice) {
  if (config.inner.optimizer != "muon") return;
  for (const auto& [worker, i] : ranks_here(plan)) {
    const cuda::DeviceInfo &device = choice.of(worker, i), &first = choice.of(worker, 0);
    if (device.name == first.name) continue;
    throw ConfigError(
        fmt::format("train.device = \"{}\" with inner.optimizer = \"muon\": rank {} of a mesh is "
                    "on {}, rank 0 on {}, and the products of the update have the same bits on "
                    "devices of one kind only; hide the others with CUDA_VISIBLE_DEVICES, set "
                    "dp = 1 or optimizer = \"adamw\"",
                    config.train.device, i, device_text(device), device_text(first)));
  }
}

/// Why a library keeps the sums of this process's meshes from NCCL: empty where none does.
std::string nccl_fault() {
  try {
    static_cast<void>(nccl_devices());
    return "";
  } catch (const SystemError& error) {
    return error.what();
  }
}

/// ... and which of its ranks do.
std::string nccl_obstacle(const TrainingPlan& plan, const DeviceChoice& choice) {
  std::set<int> taken;
  for (const auto& [worker, i] : ranks_here(plan)) {
    const cuda::DeviceInfo& device = choice.of(worker, i);
    if (!taken.insert(device.ordinal).second) {
      return fmt::format("several ranks of this process are on {}", name_of(device));
    }
  }
  return "";
}

/// The library for sums between ranks. THROWS: if NCCL is named and cannot be used, ConfigError for
/// the ranks' devices, SystemError for the library.
void choose_sums(const Config& config, const TrainingPlan& plan, DeviceChoice& choice) {
  const std::vector<RankHere> ranks = ranks_here(plan);
  if (std::ranges::none_of(ranks, [](const RankHere& each) { return each.rank > 0; })) return;
  choice.note = "sums over ranks by way of host memory";
  if (config.rank_communicators == "threads") return;
  const std::string obstacle = nccl_obstacle(plan, choice);
  const std::string fault = obstacle.empty() ? nccl_fault() : "";
  if (obstacle.empty() && fault.empty()) {
    choice.nccl = true;
    choice.note = "sums over ranks over NCCL";
    return;
  }
  const std::string why_not = obstacle.empty() ? fault : obstacle;
  if (config.rank_communicators != "nccl") {
    choice.note += fmt::format(" (NCCL: {})", why_not);
    return;
  }
  const std::string refusal = fmt::format(
      "parallel.communicators = \"nccl\": {}; set it to \"threads\", for sums by way of host "
      "memory",
      why_not);
  if (!fault.empty()) throw SystemError(refusal);
  throw ConfigError(refusal);
}

/// THROWS: OutOfDeviceMemory where the workers of this process do not fit.
void check_memory(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                  const DeviceChoice& choice) {
  const bool with_outer = outer_is_on_device(config);
  const std::int64_t outer_bytes =
      with_outer ? outer::outer_device_bytes(config.method, config.outer,
                                             parameters_without_values(layout))
                 : 0;
  std::map<int, std::int64_t> needed;  // by ordinal
  for (const auto& [worker, i] : ranks_here(plan)) {
    const int ordinal = choice.of(worker, i).ordinal;
    cuda::use_device(ordinal);  // its kernels must support the heads
    needed[ordinal] +=
        cuda_loop_memory(layout, language_model_options(config, plan, worker), {}, i).total() +
        (i == 0 ? outer_bytes : 0);
  }
  for (const auto& [ordinal, bytes] : needed) {
    cuda::use_device(ordinal);
    const auto free = static_cast<double>(cuda::device_memory().free_bytes);
    if (static_cast<double>(bytes) <= free) continue;
    throw cuda::OutOfDeviceMemory(fmt::format(
        "cuda:{}: the inner loops{} take {}, {} are free: lower train.global_batch or "
        "train.context, raise parallel.micro_batches, tp or pp, or set train.recompute = true{}{}",
        ordinal, with_outer ? " and their outer state" : "",
        human_bytes(static_cast<double>(bytes)), human_bytes(free),
        with_outer ? ", or outer.placement = \"host\"" : "",
        choice.cudnn ? ", or train.attention = \"own\"" : ""));
  }
}

bool uses_cudnn(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                const DeviceChoice& choice) {
  const WorkerId first = plan.workers_here().front();
  cuda::use_device(choice.of(first).ordinal);
  return attention_is_cudnn(layout, language_model_options(config, plan, first));
}

TrainingPlan with(const TrainingPlan& plan, const DeviceChoice& choice) {
  TrainingPlan chosen = plan;
  chosen.device = choice;
  return chosen;
}

/// Under "auto" the own kernels where cuDNN's workspaces do not fit beside the rest. THROWS: as
/// check_memory.
void settle_attention(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                      DeviceChoice& choice) {
  choice.attention = parse_device_attention(config.train.attention);
  try {
    choice.cudnn = uses_cudnn(config, with(plan, choice), layout, choice);
    check_memory(config, with(plan, choice), layout, choice);
  } catch (const cuda::OutOfDeviceMemory&) {
    if (choice.attention != DeviceAttention::kBest) throw;
    choice.attention = DeviceAttention::kOwn;
    choice.cudnn = false;
    check_memory(config, with(plan, choice), layout, choice);
  }
}

/// THROWS: SystemError where a device of this process's workers computes other things than the CPU.
void check_results(const Config& config, const TrainingPlan& plan, const DeviceChoice& choice) {
  std::set<int> checked;
  for (const auto& [worker, i] : ranks_here(plan)) {
    const cuda::DeviceInfo& device = choice.of(worker, i);
    if (!checked.insert(device.ordinal).second) continue;
    cuda::use_device(device.ordinal);
    const std::string why_not = device_self_check(language_model_options(config, plan, worker));
    if (why_not.empty()) continue;
    throw SystemError(
        fmt::format("{}, compute capability {}.{}, fails the check that comes before a run: {}; {}",
                    device_text(device), device.compute_major, device.compute_minor, why_not,
                    choice.cudnn ? "set train.attention = \"own\"" : "train with --device cpu"));
  }
}

/// The sites whose workers are in this process.
std::vector<SiteConfig> sites_here(const Config& config, const TrainingPlan& plan) {
  std::vector<SiteConfig> sites;
  for (const WorkerId rank : plan.workers_here()) {
    sites.push_back(config.sites[static_cast<std::size_t>(rank.value())]);
  }
  return sites;
}

/// Of this process's ranks, each once.
std::vector<cuda::DeviceInfo> devices_used(const TrainingPlan& plan, const DeviceChoice& choice) {
  std::map<int, cuda::DeviceInfo> used;
  for (const auto& [worker, i] : ranks_here(plan)) {
    const cuda::DeviceInfo& device = choice.of(worker, i);
    used[device.ordinal] = device;
  }
  std::vector<cuda::DeviceInfo> devices;
  for (const auto& [ordinal, device] : used) devices.push_back(device);
  return devices;
}

/// THROWS: SystemError where cuDNN is asked for by name and cannot be used, though a device can.
void check_cudnn(const Config& config) {
  if (config.train.attention != "cudnn" || config.train.device == "cpu") return;
  if (cuda::devices().empty() || cuda::cudnn_missing().empty()) return;
  throw SystemError(
      fmt::format("train.attention = \"cudnn\": {}; or set it to \"own\"", cuda::cudnn_missing()));
}

/// As train.device asks for it.
DeviceChoice choose(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                    bool simulated) {
  const DeviceRequest request = parse_device(config.train.device).value_or(DeviceRequest{});
  const bool asked_for = asks_for_cuda(config);
  if (request.kind == DeviceRequest::Kind::kCpu) return {};
  if (simulated) {
    return {.devices = {}, .note = asked_for ? "virtual time runs on the CPU" : ""};
  }
  try {
    if (!asked_for && cuda::devices().empty()) {
      return {.devices = {}, .note = cuda::driver_fault()};
    }
    if (const auto obstacle = device_obstacle(config, sites_here(config, plan))) {
      throw ConfigError(fmt::format("train.device = \"{}\" with {}: {}; {}", config.train.device,
                                    obstacle->setting, obstacle->why, obstacle->remedy));
    }
    DeviceChoice choice{.devices = devices_of(config, request), .note = {}};
    for (int ranks = 0; const SiteMesh& mesh : plan.meshes) {
      choice.ranks_before.push_back(ranks);
      ranks += mesh.shape.ranks();
    }
    check_ranks(config, plan, request, choice);
    check_kinds(config, plan, choice);
    choose_sums(config, plan, choice);
    settle_attention(config, plan, layout, choice);
    check_results(config, with(plan, choice), choice);
    return choice;
  } catch (const Error& error) {
    if (asked_for) throw;
    return {.devices = {}, .note = error.what()};
  }
}

}  // namespace

std::string no_device_here() {
  if (std::string why_not = cuda::unavailable(); !why_not.empty()) return why_not;
  for (const cuda::DeviceInfo& device : cuda::devices()) {
    if (device.compute_major >= kOldest) continue;
    return fmt::format(
        "{} has compute capability {}.{}, and kernels are built for {}.0 and later; leave it out "
        "with CUDA_VISIBLE_DEVICES",
        device_text(device), device.compute_major, device.compute_minor, kOldest);
  }
  return device_products_missing();
}

bool asks_for_cuda(const Config& config) {
  const std::optional<DeviceRequest> request = parse_device(config.train.device);
  return request && request->kind == DeviceRequest::Kind::kCuda;
}

DeviceChoice choose_device(const Config& config, const TrainingPlan& plan,
                           const ModelLayout& layout, bool simulated) {
  if (!simulated) check_cudnn(config);
  DeviceChoice choice = choose(config, plan, layout, simulated);
  if (choice.on_cuda()) use_matmul_choices(devices_used(plan, choice));
  if (outer_is_on_device(config) && !choice.on_cuda() && !simulated) {
    throw ConfigError(fmt::format(
        "outer.placement = \"device\": the inner loops are on the CPU ({}); set it to \"host\"",
        choice.note.empty() ? no_device_here() : choice.note));
  }
  if (config.train.attention == "cudnn" && !choice.on_cuda() && !simulated) {
    throw ConfigError(fmt::format(
        "train.attention = \"cudnn\": the inner loops are on the CPU ({}); set it to \"own\"",
        choice.note.empty() ? no_device_here() : choice.note));
  }
  if (names_device_sums(config) && !choice.on_cuda() && !simulated) {
    throw ConfigError(fmt::format(
        "parallel.communicators = \"{}\": a name is for ranks on CUDA devices, and the inner loops "
        "are on the CPU{}; leave it out",
        config.rank_communicators.string(), choice.note.empty() ? "" : " (" + choice.note + ")"));
  }
  return choice;
}

std::string device_text(const cuda::DeviceInfo& device) {
  return fmt::format("{} {} ({})", name_of(device), device.name,
                     human_bytes(static_cast<double>(device.memory_bytes)));
}

std::string device_text(const DeviceChoice& choice, const TrainingPlan& plan) {
  if (!choice.on_cuda()) return "cpu";
  std::vector<std::string> words;
  for (const cuda::DeviceInfo& device : devices_used(plan, choice)) {
    words.push_back(device_text(device));
  }
  const auto table = cuda::matmul_table_in_use();
  return join(words) + ", products by cuBLASLt " + device_products_version() +
         (table != nullptr ? " with the choices of " + table->source() : "") +
         (choice.cudnn ? ", attention by cuDNN " + cuda::cudnn_version() : "");
}

std::unique_ptr<InnerLoop> make_inner_loop(const DeviceChoice& choice, WorkerId rank,
                                           const LanguageModelOptions& options,
                                           BatchProvider batches) {
  if (options.model.lora.rank > 0) return std::make_unique<LoraLoop>(options, std::move(batches));
  if (!choice.on_cuda()) return std::make_unique<LanguageModelLoop>(options, std::move(batches));
  cuda::use_device(choice.of(rank).ordinal);
  if (options.mesh.ranks() == 1) return make_cuda_loop(options, std::move(batches));
  CudaMeshOptions mesh;
  for (int i = 0; i < options.mesh.ranks(); ++i) mesh.devices.push_back(choice.of(rank, i).ordinal);
  if (choice.nccl) {
    mesh.sums = [deadline = options.patience.wait](std::unique_ptr<Communicator> ranks,
                                                   int device) {
      return make_nccl_communicator(std::move(ranks), device, deadline);
    };
  }
  return make_cuda_mesh(options, std::move(batches), mesh);
}

}  // namespace isthmus::app
