// SPDX-License-Identifier: Apache-2.0
#include "transport/mix_timing.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

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

struct Contender {
  std::string name;
  Communicator* communicator;  // borrowed
};

class Turns {
 public:
  /// The back ends, the same once more in the same order, and the mixed one.
  Turns(std::vector<Contender> contenders, const Clock& clock, Duration each)
      : contenders_(std::move(contenders)), clock_(clock), each_(each) {}

  [[nodiscard]] MixTiming time(const CollectiveCase& call, std::int64_t bytes) {
    double once = 0;
    for (const Contender& each : contenders_) {
      once = std::max(once, sample(call, *each.communicator, 1));
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
        us[who].push_back(sample(call, *contenders_[who].communicator, calls));
      }
    }
    for (std::vector<double>& each : us) {  // the slowest rank counts
      common().all_reduce({each.data(), repetitions, Dtype::kF64}, Reduce::kMax);
    }
    MixTiming timing{.operation = call.operation, .bytes = bytes, .best = {}};
    timing.repetitions = repetitions;
    timing.mixed_us = median(us.back());
    for (std::size_t i = 0; i < n / 2; ++i) {
      const double single = median(us[i]);
      if (!timing.best.empty() && single >= timing.best_us) continue;
      timing.best = contenders_[i].name;
      timing.best_us = single;
      timing.again_us = median(us[n / 2 + i]);
    }
    return timing;
  }

 private:
  [[nodiscard]] Communicator& common() { return *contenders_.front().communicator; }

  /// RETURNS: microseconds a call. One goes before them, so that caches hold what it leaves and not
  /// what the contender before it has.
  double sample(const CollectiveCase& call, Communicator& on, int calls) {
    call.run(on);
    common().barrier();
    const TimePoint begin = clock_.now();
    for (int i = 0; i < calls; ++i) call.run(on);
    const std::chrono::duration<double, std::micro> took = clock_.now() - begin;
    return std::max(took.count(), 0.01) / calls;
  }

  const std::vector<Contender> contenders_;
  const Clock& clock_;
  const Duration each_;
};

}  // namespace

std::vector<MixTiming> time_mix(std::vector<NamedCommunicator> backends, const MixTable& table,
                                const Clock& clock, const CollectiveTimingOptions& options) {
  std::vector<Contender> contenders;
  for (int set = 0; set < 2; ++set) {
    for (const NamedCommunicator& each : backends) {
      contenders.push_back({each.name, each.communicator.get()});
    }
  }
  const std::unique_ptr<Communicator> mixed =
      make_mixed_communicator(std::move(backends), table);  // owns them
  contenders.push_back({"mixed", mixed.get()});
  Turns turns(std::move(contenders), clock, options.each);
  CollectiveRoom room(mixed->size(), mixed->rank(), options.largest_bytes);
  std::vector<MixTiming> timings;
  for (std::int64_t bytes = kSmallestBytes; bytes <= options.largest_bytes; bytes *= 2) {
    for (const std::int64_t size : {bytes, bytes + bytes / 2}) {  // and between the table's
      if (size > options.largest_bytes) continue;
      for (const CollectiveCase& each : room.cases(size)) {
        timings.push_back(turns.time(each, size));
      }
    }
  }
  timings.push_back(
      turns.time({Operation::kBarrier, 0, [](Communicator& on) { on.barrier(); }}, 0));
  return timings;
}

}  // namespace isthmus
