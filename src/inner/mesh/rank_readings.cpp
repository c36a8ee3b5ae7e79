// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/rank_readings.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace isthmus {
namespace {

constexpr int kFirstReading = 0;
// Readings go in messages of this many values, long enough to tell a thin link from a thick one.
constexpr std::int64_t kValues = 1 << 13;  // 64 KiB
// Passes last at least this many times as long as their readings.
constexpr int kShare = 200;

}  // namespace

RankReadings::RankReadings(const MeshShape& mesh, RankProcesses& processes)
    : processes_(processes),
      counted_(make_waiting_communicator(processes.passes, processes.clock, waited_)),
      watch_(mesh) {}

double RankReadings::seconds_since(TimePoint begin) const {
  return in_seconds(processes_.clock.now() - begin);
}

void RankReadings::count(const std::function<void()>& computing) {
  const TimePoint begin = processes_.clock.now();
  const Duration waited = waited_.total();
  computing();
  computed_s_ += seconds_since(begin) - in_seconds(waited_.total() - waited);
  ++passes_;
}

bool RankReadings::due() const { return passes_s_ >= kShare * readings_s_; }

void RankReadings::exchange() {
  const double computed = computed_s_ / static_cast<double>(std::max<std::int64_t>(passes_, 1));
  computed_s_ = 0;
  passes_ = 0;
  if (counted_->rank() != kFirstReading) {
    answer(computed);
    return;
  }
  std::vector<double> message(kValues);
  const TimePoint begin = processes_.clock.now();
  std::vector<RankReading> readings = {{.computed_s = computed}};
  for (int r = 1; r < counted_->size(); ++r) {
    const TimePoint asked = processes_.clock.now();
    counted_->send({message.data(), kValues, Dtype::kF64}, r, kTag);
    counted_->receive({message.data(), kValues, Dtype::kF64}, r, kTag);
    readings.push_back({.computed_s = message.front(), .answered_s = seconds_since(asked)});
  }
  readings_s_ = seconds_since(begin);
  passes_s_ = 0;
  for (const RankFinding& finding : watch_.add(processes_.step, readings)) {
    if (processes_.on_finding) processes_.on_finding(finding);
  }
}

void RankReadings::answer(double computed_s) {
  std::vector<double> message(kValues);
  counted_->receive({message.data(), kValues, Dtype::kF64}, kFirstReading, kTag);
  message.front() = computed_s;
  counted_->send({message.data(), kValues, Dtype::kF64}, kFirstReading, kTag);
}

}  // namespace isthmus
