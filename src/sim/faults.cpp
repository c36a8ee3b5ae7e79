// SPDX-License-Identifier: Apache-2.0
#include "sim/faults.h"

#include <fmt/format.h>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Draws of one frame; `sub` of the counter is (kFirstDraw + draw) beside the link's number, clear
// of the links' own draws, which use the bare number.
enum Draw : std::uint32_t {
  kDrop = 1,
  kDelay,
  kDuplicate,
  kReorder,
  kCorrupt,
  kDelayTime,
  kReorderTime,
  kRepeatTime,
  kBit
};

constexpr std::uint32_t sub_of(std::uint32_t link, std::uint32_t draw) { return draw << 24 | link; }

void require_rank(WorkerId rank, int members, const char* field) {
  if (rank.value() >= 0 && rank.value() < members) return;
  throw ConfigError(fmt::format("faults.{}: rank {} does not exist; there are ranks 0..{}", field,
                                rank.value(), members - 1));
}

}  // namespace

void check_faults(const FaultPlan& plan, int members) {
  const auto probability = [](double value, const char* field) {
    if (value >= 0 && value <= 1) return;
    throw ConfigError(
        fmt::format("faults.{} = {}: must be in [0, 1], a probability", field, value));
  };
  probability(plan.drop, "drop");
  probability(plan.delay, "delay");
  probability(plan.duplicate, "duplicate");
  probability(plan.reorder, "reorder");
  probability(plan.corrupt, "corrupt");
  if (plan.longest_delay <= Duration::zero()) {
    throw ConfigError(
        fmt::format("faults.longest_delay = {} ns: must be > 0", plan.longest_delay.count()));
  }
  for (const FaultPlan::Partition& partition : plan.partitions) {
    require_rank(partition.a, members, "partition");
    require_rank(partition.b, members, "partition");
  }
  if (plan.dead_after <= Duration::zero()) {
    throw ConfigError(
        fmt::format("faults.dead_after = {} ns: must be > 0", plan.dead_after.count()));
  }
  for (const FaultPlan::Crash& crash : plan.crashes) require_rank(crash.rank, members, "crash");
  for (const FaultPlan::Slowdown& slowdown : plan.slowdowns) {
    require_rank(slowdown.rank, members, "slowdown");
    if (!(slowdown.factor > 0 && slowdown.factor < 1e6)) {
      throw ConfigError(fmt::format("faults.slowdown of rank {} = {}: must be in (0, 1e6)",
                                    slowdown.rank.value(), slowdown.factor));
    }
  }
}

FrameFate decide_fate(const FaultPlan& plan, const Rng& rng, std::uint32_t link,
                      std::uint64_t frame, WorkerId from, WorkerId to, TimePoint now) {
  FrameFate fate;
  for (const FaultPlan::Partition& cut : plan.partitions) {
    const bool there = cut.a == from && cut.b == to;
    const bool between = there || (!cut.one_way && cut.a == to && cut.b == from);
    if (between && now >= cut.begin && now < cut.end) fate.drop = true;
  }
  if (now >= plan.until) return fate;
  const auto happens = [&](double probability, Draw draw) {
    return probability > 0 && rng.uniform(frame, sub_of(link, draw)) < probability;
  };
  const auto some_time = [&](Draw draw) {
    const auto bound = static_cast<std::uint64_t>(plan.longest_delay.count());
    return Duration(static_cast<std::int64_t>(rng.below(bound, frame, sub_of(link, draw))) + 1);
  };
  fate.drop = fate.drop || happens(plan.drop, kDrop);
  fate.corrupt = happens(plan.corrupt, kCorrupt);
  if (happens(plan.delay, kDelay)) fate.hold_up = some_time(kDelayTime);
  if (happens(plan.reorder, kReorder)) fate.fall_behind = some_time(kReorderTime);
  if (happens(plan.duplicate, kDuplicate)) fate.repeat_after = some_time(kRepeatTime);
  if (fate.corrupt) {
    const auto words = rng.words(frame, sub_of(link, kBit));
    fate.chosen_bit = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  }
  return fate;
}

}  // namespace isthmus
