// SPDX-License-Identifier: Apache-2.0
// What simulation costs, as JSON lines; see sim/sim_timing.h.
#include <cstdio>
#include <thread>

#include "core/system_runtime.h"
#include "sim/sim_timing.h"

int main() {
  const isthmus::SystemRuntime runtime;
  isthmus::time_simulation(runtime.clock(), static_cast<int>(std::thread::hardware_concurrency()),
                           [](const std::string& json) {
                             std::printf("%s\n", json.c_str());
                             std::fflush(stdout);
                           });
  return 0;
}
