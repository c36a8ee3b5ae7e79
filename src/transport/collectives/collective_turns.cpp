// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/collective_turns.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace isthmus {
namespace {

// Short calls are timed several at a time: the clock and the barrier before them are not free.
constexpr double kSampleUs = 50;
constexpr double kMostCalls = 64;
constexpr double kFewestTurns = 9;
constexpr double kMostTurns = 500;

}  // namespace

CollectiveTurns::CollectiveTurns(std::vector<Communicator*> communicators, const Clock& clock,
                                 Duration each)
    : communicators_(std::move(communicators)), clock_(clock), each_(each) {}

CollectiveTurns::Times CollectiveTurns::time(const CollectiveCase& call) {
  double once = 0;
  for (Communicator* const each : communicators_) once = std::max(once, sample(call, *each, 1));
  common().all_reduce({&once, 1, Dtype::kF64}, Reduce::kMax);
  const int calls = static_cast<int>(std::clamp(kSampleUs / once, 1.0, kMostCalls));
  const double budget = std::chrono::duration<double, std::micro>(each_).count();
  Times times;
  times.repetitions =
      static_cast<int>(std::clamp(budget / (once * calls), kFewestTurns, kMostTurns));
  const std::size_t n = communicators_.size();
  std::vector<std::vector<double>> us(n);
  for (int i = 0; i < times.repetitions; ++i) {
    for (std::size_t turn = 0; turn < n; ++turn) {
      const std::size_t who = (static_cast<std::size_t>(i) + turn) % n;
      us[who].push_back(sample(call, *communicators_[who], calls));
    }
  }
  for (std::vector<double>& each : us) {  // the slowest rank counts
    common().all_reduce({each.data(), times.repetitions, Dtype::kF64}, Reduce::kMax);
    std::sort(each.begin(), each.end());
    times.median_us.push_back(each[each.size() / 2]);
    times.least_us.push_back(each.front());
  }
  return times;
}

double CollectiveTurns::sample(const CollectiveCase& call, Communicator& on, int calls) {
  call.run(on);
  common().barrier();
  const TimePoint begin = clock_.now();
  for (int i = 0; i < calls; ++i) call.run(on);
  const std::chrono::duration<double, std::micro> took = clock_.now() - begin;
  return std::max(took.count(), 0.01) / calls;
}

}  // namespace isthmus
