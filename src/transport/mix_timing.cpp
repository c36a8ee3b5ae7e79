// SPDX-License-Identifier: Apache-2.0
#include "transport/mix_timing.h"

#include <algorithm>

#include "core/check.h"
#include "transport/collective_cases.h"

namespace isthmus {
namespace {

// Short calls are timed several at a time: the clock and the barrier before them are not free.
constexpr double kSampleUs = 50;
constexpr double kMostCalls = 64;
constexpr double kLeastRepetitions = 9;
constexpr double kMostRepetitions = 500;

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class Turns {
 public:
  Turns(const std::vector<NamedCommunicator>& singles, Communicator& mixed, const Clock& clock,
        Duration each)
      : singles_(singles), clock_(clock), each_(each) {
    for (const NamedCommunicator& single : singles)
      contenders_.push_back(single.communicator.get());
    contenders_.push_back(&mixed);
  }

  [[nodiscard]] MixTiming time(const CollectiveCase& call, std::int64_t bytes) {
    double once = 0;
    for (Communicator* each : contenders_) {
      call.run(*each);
      once = std::max(once, sample(call, *each, 1));
    }
    common().all_reduce({&once, 1, Dtype::kF64}, Reduce::kMax);
    const int calls = static_cast<int>(std::clamp(kSampleUs / once, 1.0, kMostCalls));
    const double budget = std::chrono::duration<double, std::micro>(each_).count();
    const int repetitions =
        static_cast<int>(std::clamp(budget / (once * calls), kLeastRepetitions, kMostRepetitions));
    const std::size_t n = contenders_.size();
    std::vector<std::vector<double>> us(n);
    for (int i = 0; i < repetitions; ++i) {
      for (std::size_t turn = 0; turn < n; ++turn) {
        const std::size_t who = (static_cast<std::size_t>(i) + turn) % n;
        us[who].push_back(sample(call, *contenders_[who], calls));
      }
    }
    for (std::vector<double>& each : us) {  // the slowest rank counts
      common().all_reduce({each.data(), repetitions, Dtype::kF64}, Reduce::kMax);
    }
    MixTiming timing{.operation = call.operation, .bytes = bytes, .best = {}};
    timing.repetitions = repetitions;
    timing.mixed_us = median(us.back());
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const double single = median(us[i]);
      if (!timing.best.empty() && single >= timing.best_us) continue;
      timing.best = singles_[i].name;
      timing.best_us = single;
    }
    return timing;
  }

 private:
  [[nodiscard]] Communicator& common() { return *contenders_.front(); }

  /// RETURNS: microseconds a call.
  double sample(const CollectiveCase& call, Communicator& on, int calls) {
    common().barrier();
    const TimePoint begin = clock_.now();
    for (int i = 0; i < calls; ++i) call.run(on);
    const std::chrono::duration<double, std::micro> took = clock_.now() - begin;
    return std::max(took.count(), 0.01) / calls;
  }

  const std::vector<NamedCommunicator>& singles_;
  const Clock& clock_;
  const Duration each_;
  std::vector<Communicator*> contenders_;  // the mixed one last
};

}  // namespace

std::vector<MixTiming> time_mix(const std::vector<NamedCommunicator>& singles, Communicator& mixed,
                                const Clock& clock, const CollectiveTimingOptions& options) {
  ISTHMUS_CHECK(!singles.empty());
  Turns turns(singles, mixed, clock, options.each);
  CollectiveRoom room(mixed.size(), mixed.rank(), options.largest_bytes);
  std::vector<MixTiming> timings;
  for (std::int64_t bytes = kSmallestBytes; bytes <= options.largest_bytes; bytes *= 2) {
    for (const CollectiveCase& each : room.cases(bytes)) {
      timings.push_back(turns.time(each, bytes));
    }
  }
  timings.push_back(
      turns.time({Operation::kBarrier, 0, [](Communicator& on) { on.barrier(); }}, 0));
  return timings;
}

}  // namespace isthmus
