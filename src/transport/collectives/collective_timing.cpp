// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/collective_timing.h"

#include <algorithm>
#include <functional>

#include "transport/collectives/collective_cases.h"
#include "transport/collectives/collective_turns.h"

namespace isthmus {
namespace {

constexpr std::int64_t kValue = 4;  // bytes
constexpr int kLeastRepetitions = 5;
constexpr int kMostRepetitions = 2000;

struct Times {
  double median_us = 0;
  double least_us = 0;
  int repetitions = 0;
};

double since_us(const Clock& clock, TimePoint begin) {
  return std::chrono::duration<double, std::micro>(clock.now() - begin).count();
}

/// The slowest rank of every repetition counts. Each begins together, behind a barrier.
Times time_together(Communicator& ranks, const Clock& clock, Duration each,
                    const std::function<void()>& run) {
  run();
  ranks.barrier();
  TimePoint begin = clock.now();
  run();
  double first = std::max(since_us(clock, begin), 0.1);
  ranks.all_reduce({&first, 1, Dtype::kF64}, Reduce::kMax);
  const double budget = std::chrono::duration<double, std::micro>(each).count();
  const int repetitions = static_cast<int>(
      std::clamp(budget / first, double{kLeastRepetitions}, double{kMostRepetitions}));
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    ranks.barrier();
    begin = clock.now();
    run();
    times.push_back(std::max(since_us(clock, begin), 0.01));
  }
  ranks.all_reduce({times.data(), repetitions, Dtype::kF64}, Reduce::kMax);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), repetitions};
}

/// Bytes a microsecond that all ranks together read and write when each updates its own memory.
double memory_speed(Communicator& ranks, const Clock& clock, std::vector<float>& room,
                    Duration each) {
  const Times times = time_together(ranks, clock, each, [&] {
    for (float& value : room) value = value + 1.0f;
  });
  const auto bytes = 2 * kValue * static_cast<std::int64_t>(room.size()) * ranks.size();
  return static_cast<double>(bytes) / times.median_us;
}

CollectiveTiming timing_of(const Communicator& ranks, Operation operation, std::int64_t bytes,
                           const Times& times) {
  CollectiveTiming timing;
  timing.call.ranks = ranks.size();
  timing.call.operation = operation;
  timing.call.backend = std::string(ranks.backend());
  timing.call.bytes = bytes;
  timing.call.us = times.median_us;
  timing.least_us = times.least_us;
  timing.repetitions = times.repetitions;
  return timing;
}

}  // namespace

std::vector<std::int64_t> timed_sizes(std::int64_t largest_bytes) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 1 << 10; bytes <= largest_bytes; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

std::vector<CollectiveTiming> time_collectives(Communicator& ranks, const Clock& clock,
                                               const CollectiveTimingOptions& options) {
  CollectiveRoom room(ranks.size(), ranks.rank(), options.largest_bytes);
  std::vector<CollectiveTiming> timings;
  const bool shares_memory = ranks.backend() == "threads";
  for (const std::int64_t bytes : timed_sizes(options.largest_bytes)) {
    double speed = 0;
    if (shares_memory) {
      std::vector<float> own_memory(static_cast<std::size_t>(bytes / kValue), 0.0f);
      speed = memory_speed(ranks, clock, own_memory, options.each);
    }
    for (const CollectiveCase& each : room.cases(bytes)) {
      const Times times = time_together(ranks, clock, options.each, [&] { each.run(ranks); });
      CollectiveTiming timing = timing_of(ranks, each.operation, bytes, times);
      timing.moved_bytes = each.moved_bytes;
      timing.bound_us = speed > 0 ? static_cast<double>(each.moved_bytes) / speed : 0;
      timings.push_back(timing);
    }
  }
  const Times times = time_together(ranks, clock, options.each, [&] { ranks.barrier(); });
  timings.push_back(timing_of(ranks, Operation::kBarrier, 0, times));
  return timings;
}

std::vector<CollectiveTiming> time_in_turns(const std::vector<NamedCommunicator>& backends,
                                            const Clock& clock,
                                            const CollectiveTimingOptions& options) {
  std::vector<Communicator*> communicators;
  for (const NamedCommunicator& each : backends) communicators.push_back(each.communicator.get());
  const Communicator& first = *communicators.front();
  CollectiveRoom room(first.size(), first.rank(), options.largest_bytes);
  CollectiveTurns turns(communicators, clock, options.each);
  std::vector<std::vector<CollectiveTiming>> by_backend(backends.size());
  const auto time = [&](const CollectiveCase& call, std::int64_t bytes) {
    const CollectiveTurns::Times times = turns.time(call);
    for (std::size_t i = 0; i < backends.size(); ++i) {
      CollectiveTiming timing = timing_of(
          first, call.operation, bytes, {times.median_us[i], times.least_us[i], times.repetitions});
      timing.call.backend = backends[i].name;
      timing.moved_bytes = call.moved_bytes;
      by_backend[i].push_back(timing);
    }
  };
  for (const std::int64_t bytes : timed_sizes(options.largest_bytes)) {
    for (const CollectiveCase& each : room.cases(bytes)) time(each, bytes);
  }
  time({Operation::kBarrier, 0, [](Communicator& on) { on.barrier(); }}, 0);
  std::vector<CollectiveTiming> timings;
  for (const std::vector<CollectiveTiming>& each : by_backend) {
    timings.insert(timings.end(), each.begin(), each.end());
  }
  return timings;
}

std::vector<int> group_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 2; size <= ranks; ++size) {
    if (size == 2 || ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace isthmus
