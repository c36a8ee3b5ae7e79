// SPDX-License-Identifier: Apache-2.0
#include "transport/collective_timing.h"

#include <algorithm>
#include <functional>

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

}  // namespace

std::vector<CollectiveTiming> time_collectives(Communicator& ranks, const Clock& clock,
                                               const CollectiveTimingOptions& options) {
  const std::int64_t n = ranks.size();
  const auto most = static_cast<std::size_t>(options.largest_bytes / kValue);
  std::vector<float> values(most, 0.0f);
  std::vector<float> room(most, 0.0f);
  std::vector<CollectiveTiming> timings;
  const bool shares_memory = ranks.backend() == "threads";
  for (std::int64_t bytes = 1 << 10; bytes <= options.largest_bytes; bytes *= 4) {
    const std::int64_t count = bytes / kValue;
    std::vector<std::int64_t> shares;
    for (int rank = 0; rank < n; ++rank) {
      shares.push_back(count * (rank + 1) / n - count * rank / n);
    }
    const auto own = static_cast<std::size_t>(ranks.rank());
    const ConstValues whole{values.data(), count, Dtype::kF32};
    const ConstValues part{room.data(), shares[own], Dtype::kF32};
    const int next = static_cast<int>((ranks.rank() + 1) % n);
    const int previous = static_cast<int>((ranks.rank() + n - 1) % n);
    double speed = 0;
    if (shares_memory) {
      std::vector<float> own_memory(static_cast<std::size_t>(count), 0.0f);
      speed = memory_speed(ranks, clock, own_memory, options.each);
    }
    struct Case {
      Operation operation;
      std::int64_t moved;  // bytes
      std::function<void()> run;
    };
    const std::vector<Case> cases = {
        {Operation::kAllReduce, 2 * n * bytes,
         [&] {
           ranks.all_reduce({values.data(), count, Dtype::kF32}, Reduce::kSum);
         }},
        {Operation::kReduceScatter, (n + 1) * bytes,
         [&] {
           ranks.reduce_scatter(whole, shares, {room.data(), shares[own], Dtype::kF32},
                                Reduce::kSum);
         }},
        {Operation::kAllGather, 2 * n * bytes,
         [&] {
           ranks.all_gather(part, shares, {values.data(), count, Dtype::kF32});
         }},
        {Operation::kBroadcast, 2 * (n - 1) * bytes,
         [&] {
           ranks.broadcast({values.data(), count, Dtype::kF32}, 0);
         }},
        {Operation::kSend, 2 * n * bytes,
         [&] {
           if (n == 1) return;
           ranks.send(whole, next, 0);
           ranks.receive({room.data(), count, Dtype::kF32}, previous, 0);
         }},
    };
    for (const Case& each : cases) {
      const Times times = time_together(ranks, clock, options.each, each.run);
      CollectiveTiming timing;
      timing.call.operation = each.operation;
      timing.call.backend = std::string(ranks.backend());
      timing.call.bytes = bytes;
      timing.call.us = times.median_us;
      timing.least_us = times.least_us;
      timing.moved_bytes = each.moved;
      timing.bound_us = speed > 0 ? static_cast<double>(each.moved) / speed : 0;
      timing.repetitions = times.repetitions;
      timings.push_back(timing);
    }
  }
  CollectiveTiming barrier;
  const Times times = time_together(ranks, clock, options.each, [&] { ranks.barrier(); });
  barrier.call.operation = Operation::kBarrier;
  barrier.call.backend = std::string(ranks.backend());
  barrier.call.us = times.median_us;
  barrier.least_us = times.least_us;
  barrier.repetitions = times.repetitions;
  timings.push_back(barrier);
  return timings;
}

}  // namespace isthmus
