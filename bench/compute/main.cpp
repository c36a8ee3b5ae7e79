// SPDX-License-Identifier: Apache-2.0
// Training speed of the measured workloads, one JSON object a line:
//   isthmus_bench_compute [--config NAME]... [--threads N] [--seconds S] [--batch B]
//                         [--micro-batches K] [--clock wall|cpu]
// --clock cpu counts processor time of this process, which on a busy machine says more than the
// wall clock as long as there is one thread. Without --config it runs tiny, small, llama-small and
// small-10m.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/system_runtime.h"
#include "inner/model_timing.h"
#include "isthmus/errors.h"

namespace {

class ProcessorClock final : public isthmus::Clock {
 public:
  [[nodiscard]] isthmus::TimePoint now() const override {
    const double seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return isthmus::TimePoint(isthmus::Duration(static_cast<std::int64_t>(seconds * 1e9)));
  }
};

struct Arguments {
  std::vector<std::string> workloads;
  bool processor_clock = false;
  isthmus::ModelTimingOptions options{.threads = 2};
};

/// THROWS: std::invalid_argument or std::out_of_range for what is not understood.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(flag);
    const std::string value = argv[++i];
    if (flag == "--config") {
      arguments.workloads.push_back(value);
    } else if (flag == "--threads") {
      arguments.options.threads = std::stoi(value);
    } else if (flag == "--seconds") {
      arguments.options.seconds = std::stod(value);
    } else if (flag == "--batch") {
      arguments.options.sequences = std::stoll(value);
    } else if (flag == "--micro-batches") {
      arguments.options.micro_batches = std::stoll(value);
    } else if (flag == "--clock" && (value == "wall" || value == "cpu")) {
      arguments.processor_clock = value == "cpu";
    } else {
      throw std::invalid_argument(flag);
    }
  }
  if (arguments.workloads.empty()) {
    arguments.workloads = {"tiny", "small", "llama-small", "small-10m"};
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  try {
    arguments = parse(argc, argv);
  } catch (const std::logic_error& error) {
    std::fprintf(stderr,
                 "usage: isthmus_bench_compute [--config NAME]... [--threads N] [--seconds S] "
                 "[--batch B] [--micro-batches K] [--clock wall|cpu]   (not understood: %s)\n",
                 error.what());
    return static_cast<int>(isthmus::ExitCode::kUsage);
  }
  const isthmus::SystemRuntime runtime;
  const ProcessorClock processor_clock;
  const isthmus::Clock& clock = arguments.processor_clock
                                    ? static_cast<const isthmus::Clock&>(processor_clock)
                                    : runtime.clock();
  try {
    for (const std::string& name : arguments.workloads) {
      const isthmus::ModelTiming timing =
          isthmus::time_model(isthmus::find_workload(name), arguments.options, clock);
      std::printf("%s\n", isthmus::to_json(timing).c_str());
      std::fflush(stdout);
    }
  } catch (const isthmus::Error& error) {
    std::fprintf(stderr, "isthmus_bench_compute: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
