// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/system_runtime.h"
#include "sim/world.h"

namespace isthmus {
namespace {

using std::chrono::microseconds;

double seconds_of(const Clock& clock, const std::function<void()>& work) {
  const TimePoint begin = clock.now();
  work();
  return in_seconds(clock.now() - begin);
}

double median_of(int repeats, const std::function<double()>& measure) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(repeats));
  for (int i = 0; i < repeats; ++i) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Each rank waits for its turn, then gives it to the next one after a virtual microsecond.
double switches_per_s(const Clock& clock, int ranks, int total) {
  SimWorld world(1);
  double elapsed = 0;
  world.run([&] {
    std::vector<std::unique_ptr<WaitQueue>> queues;
    queues.reserve(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) queues.push_back(world.make_wait_queue());
    std::vector<int> tokens(static_cast<std::size_t>(ranks), 0);
    const auto pass_to = [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      queues[i]->update([&tokens, i] { ++tokens[i]; });
    };
    const int rounds = total / ranks;
    elapsed = seconds_of(clock, [&] {
      std::vector<std::unique_ptr<Task>> tasks;
      tasks.reserve(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        tasks.push_back(world.spawn(fmt::format("rank-{}", rank), [&, rank] {
          const auto i = static_cast<std::size_t>(rank);
          for (int round = 0; round < rounds; ++round) {
            queues[i]->wait([&tokens, i] { return tokens[i] > 0 && tokens[i]-- > 0; }, kNever);
            world.at(world.clock().now() + microseconds(1), 1,
                     [&pass_to, rank, ranks] { pass_to((rank + 1) % ranks); });
          }
        }));
      }
      pass_to(0);
      for (auto& task : tasks) task->join();
    });
  });
  return static_cast<double>(world.switches()) / elapsed;
}

/// Work of about a millisecond that no compiler removes.
void spin() {
  static thread_local std::uint64_t state = 1;
  for (int i = 0; i < 700'000; ++i) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  // The value leaves the function through a volatile, so the loop has to happen.
  volatile std::uint64_t sink = state;
  static_cast<void>(sink);
}

double simulated_seconds(const Clock& clock, int workers, int steps, int slots) {
  SimWorld world(1, {.slots = slots});
  return seconds_of(clock, [&] {
    world.run([&] {
      std::vector<std::unique_ptr<Task>> tasks;
      tasks.reserve(static_cast<std::size_t>(workers));
      for (int worker = 0; worker < workers; ++worker) {
        tasks.push_back(world.spawn(fmt::format("worker-{}", worker), [&] {
          for (int step = 0; step < steps; ++step) world.compute(microseconds(900), spin);
        }));
      }
      for (auto& task : tasks) task->join();
    });
  });
}

/// The same work on plain threads, one a core: the speed of the machine itself.
double threads_seconds(const Clock& clock, int threads, int steps) {
  SystemRuntime runtime;
  return seconds_of(clock, [&] {
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(static_cast<std::size_t>(threads));
    for (int thread = 0; thread < threads; ++thread) {
      tasks.push_back(runtime.spawn("spin", [steps] {
        for (int step = 0; step < steps; ++step) spin();
      }));
    }
    for (auto& task : tasks) task->join();
  });
}

}  // namespace

void time_simulation(const Clock& clock, int cores,
                     const std::function<void(const std::string& json)>& emit) {
  constexpr int kRepeats = 5;
  for (const int ranks : {8, 32, 128}) {
    const double rate = median_of(kRepeats, [&] { return switches_per_s(clock, ranks, 60'000); });
    emit(fmt::format(R"({{"bench":"sim_switches","ranks":{},"switches_per_s":{:.0f}}})", ranks,
                     rate));
  }
  constexpr int kSteps = 200;
  const double bare = median_of(kRepeats, [&] {
    return seconds_of(clock, [&] {
      for (int step = 0; step < 8 * kSteps; ++step) spin();
    });
  });
  const double one =
      median_of(kRepeats, [&] { return simulated_seconds(clock, 1, 8 * kSteps, 1); });
  emit(fmt::format(
      R"({{"bench":"sim_overhead","step_ms":{:.3f},"bare_s":{:.4f},"simulated_s":{:.4f},"overhead":{:.4f}}})",
      bare * 1e3 / (8 * kSteps), bare, one, one / bare - 1));
  const double threads =
      median_of(kRepeats, [&] { return threads_seconds(clock, cores, 8 * kSteps / cores); });
  const double all = median_of(kRepeats, [&] { return simulated_seconds(clock, 8, kSteps, 0); });
  emit(fmt::format(
      R"({{"bench":"sim_concurrency","workers":8,"cores":{},"one_by_one_s":{:.4f},"all_cores_s":{:.4f},"speedup":{:.2f},"plain_threads_speedup":{:.2f}}})",
      cores, bare, all, bare / all, bare / threads));
}

}  // namespace isthmus
