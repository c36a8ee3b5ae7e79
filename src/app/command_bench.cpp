// SPDX-License-Identifier: Apache-2.0
// `bench compute`, `bench sim`, `bench utilisation`: JSON lines, each printed as soon as it is
// measured.
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "app/build_info.h"
#include "app/commands.h"
#include "app/json_line.h"
#include "core/system_runtime.h"
#include "inner/model_timing.h"
#include "kernels/isa.h"
#include "kernels/thread_team.h"
#include "plan/utilisation.h"
#include "sim/sim_timing.h"

namespace isthmus::app {

int command_bench_compute(const BenchComputeArguments& arguments, Session& session) {
  std::vector<std::string> names = arguments.workloads;
  if (names.empty()) {
    names = {"tiny", "small", "llama-small", "small-10m"};
  }
  if (arguments.threads < 0 || arguments.threads > kernels::ThreadTeam::kMaxSize) {
    throw UsageError(fmt::format("bench compute: --threads {}: must be in [0, {}]",
                                 arguments.threads, kernels::ThreadTeam::kMaxSize));
  }
  if (arguments.sequences < 0 || !(arguments.seconds > 0) || arguments.seconds > 3600) {
    throw UsageError("bench compute: --batch must be >= 0, --seconds in (0, 3600]");
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
  options.optimizer = arguments.optimizer;
  options.micro_batches = arguments.micro_batches;
  options.recompute = arguments.recompute;
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
      seconds = std::chrono::duration<double>(runtime.clock().now() - begin).count();
    }
    session.out.write(JsonLine()
                          .add("bench", "utilisation")
                          .add("params", each.model.parameters)
                          .add("layers", each.model.layers)
                          .add("method", each.method)
                          .add("points", points)
                          .add("points_per_s", std::round(static_cast<double>(points) / seconds))
                          .str() +
                      "\n");
  }
  return 0;
}

}  // namespace isthmus::app
