// SPDX-License-Identifier: Apache-2.0
// `bench compute`, `bench sim`, `bench utilisation`: JSON lines, each printed as soon as it is
// measured.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "app/common/commands.h"
#include "app/train/device_choice.h"
#include "app/train/matmul_choices.h"
#include "config/schema/device_request.h"
#include "config/schema/recompute.h"
#include "core/base/system_runtime.h"
#include "inner/cuda/device_timing.h"
#include "inner/loop/model_timing.h"
#include "kernels/isa.h"
#include "kernels/thread_team.h"
#include "plan/utilisation.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "sim/sim_timing.h"

namespace isthmus::app {
namespace {

/// The device asked for; nothing for the CPU. THROWS: UsageError, ConfigError by name where it is
/// not there or does not compute this.
std::optional<cuda::DeviceInfo> bench_device(const BenchComputeArguments& arguments) {
  const std::optional<DeviceRequest> request = parse_device(arguments.device);
  if (!request || request->kind == DeviceRequest::Kind::kAuto) {
    throw UsageError(
        fmt::format("bench compute: --device {}: must be cpu, cuda or cuda:N", arguments.device));
  }
  if (request->kind == DeviceRequest::Kind::kCpu) {
    if (arguments.attention != "cudnn") return std::nullopt;
    throw UsageError(
        "bench compute: --attention cudnn computes on CUDA devices: add --device cuda");
  }
  const auto refuse = [&](const std::string& why) {
    return ConfigError(fmt::format("bench compute: --device {}: {}", arguments.device, why));
  };
  if (const std::string why_not = no_device_here(); !why_not.empty()) throw refuse(why_not);
  if (arguments.tp * arguments.pp * arguments.dp > 1) {
    throw refuse("one device computes a whole worker; leave --tp, --pp and --dp out");
  }
  if (arguments.attention == "cudnn" && arguments.precision != "bf16") {
    throw refuse("--attention cudnn is of bf16; add --precision bf16");
  }
  const std::vector<cuda::DeviceInfo> devices = cuda::devices();
  const int wanted = request->ordinal.value_or(devices.front().ordinal);
  const auto found = std::ranges::find(devices, wanted, &cuda::DeviceInfo::ordinal);
  if (found == devices.end()) {
    throw refuse(fmt::format("this process may use devices 0 to {}", devices.size() - 1));
  }
  return *found;
}

}  // namespace

int command_bench_compute(const BenchComputeArguments& arguments, Session& session) {
  std::vector<std::string> names = arguments.workloads;
  if (names.empty()) {
    names = {"tiny", "small", "llama-small", "small-10m"};
  }
  if (arguments.threads < 0 || arguments.threads > kernels::ThreadTeam::kMaxSize) {
    throw UsageError(fmt::format("bench compute: --threads {}: must be in [0, {}]",
                                 arguments.threads, kernels::ThreadTeam::kMaxSize));
  }
  if (arguments.sequences < 0) {
    throw UsageError(
        fmt::format("bench compute: --batch {}: must be at least 0 (0: as the workload has it)",
                    arguments.sequences));
  }
  if (!(arguments.seconds > 0) || arguments.seconds > 3600) {
    throw UsageError(fmt::format("bench compute: --seconds {}: must be above 0 and at most 3600",
                                 arguments.seconds));
  }
  for (const auto& [flag, ranks] :
       {std::pair{"--tp", arguments.tp}, {"--pp", arguments.pp}, {"--dp", arguments.dp}}) {
    if (ranks < 1)
      throw UsageError(fmt::format("bench compute: {} {}: must be at least 1", flag, ranks));
  }
  kernels::use_isa(kernels::isa_named(arguments.kernels));
  ModelTimingOptions options;
  options.threads = arguments.threads > 0 ? arguments.threads : machine_info().cores;
  options.seconds = arguments.seconds;
  options.sequences = arguments.sequences;
  options.bf16 = arguments.precision == "bf16";
  options.attention = parse_device_attention(arguments.attention);
  options.optimizer = arguments.optimizer;
  options.micro_batches = arguments.micro_batches;
  options.recompute = parse_recompute(arguments.recompute).value_or(Recompute::kNone);
  options.mesh = {.tp = arguments.tp,
                  .pp = arguments.pp,
                  .dp = arguments.dp,
                  .sequence_parallel = arguments.sequence_parallel};
  options.zero = arguments.zero;
  if (arguments.pp > 1) options.schedule = parse_pipeline_kind(arguments.schedule);
  options.virtual_stages = arguments.virtual_stages;
  std::vector<Workload> workloads;
  for (const std::string& name : names) {
    workloads.push_back(find_workload(name));  // all names are known before the first is timed
  }
  const SystemRuntime runtime;
  if (const auto device = bench_device(arguments)) {
    cuda::use_device(device->ordinal);
    use_matmul_choices({*device});
    for (const Workload& workload : workloads) {
      session.out.write(to_json(time_model_on_device(workload, options, *device, runtime.clock())) +
                        "\n");
    }
    return 0;
  }
  for (const Workload& workload : workloads) {
    session.out.write(to_json(time_model(workload, options, runtime.clock())) + "\n");
  }
  return 0;
}

int command_bench_sim(Session& session) {
  const SystemRuntime runtime;
  time_simulation(runtime.clock(), machine_info().cores,
                  [&session](const std::string& json) { session.out.write(json + "\n"); });
  return 0;
}

int command_bench_utilisation(Session& session) {
  struct Case {
    UtilisationModel model;
    const char* method;
  };
  const UtilisationModel small{.parameters = 1e9, .layers = 24, .step_s = 0.1};
  const UtilisationModel large{.parameters = 1e11, .layers = 108, .step_s = 4.9};
  const Case cases[] = {{small, "ddp"},
                        {small, "diloco"},
                        {small, "streaming-diloco:overlap=1,bits=4"},
                        {small, "eager"},
                        {large, "ddp"},
                        {large, "diloco"},
                        {large, "streaming-diloco:overlap=1,bits=4"},
                        {large, "eager"}};
  constexpr double kSeconds = 0.5;  // of each case
  const SystemRuntime runtime;
  for (const Case& each : cases) {
    const TimePoint begin = runtime.clock().now();
    std::int64_t points = 0;
    double seconds = 0;
    while (seconds < kSeconds) {
      // A point from nothing but its words and numbers: the schedule is made for each curve anew.
      const UtilisationRow row =
          utilisation_row(parse_utilisation_choice(each.method), each.model.layers);
      for (const double rate : bandwidth_grid()) {
        (void)compute_utilisation(each.model, row.schedule, rate);
        ++points;
      }
      seconds = in_seconds(runtime.clock().now() - begin);
    }
    session.answer(JsonLine()
                       .add("bench", "utilisation")
                       .add("params", each.model.parameters)
                       .add("layers", each.model.layers)
                       .add("method", each.method)
                       .add("points", points)
                       .add("points_per_s", std::round(static_cast<double>(points) / seconds)));
  }
  return 0;
}

}  // namespace isthmus::app
