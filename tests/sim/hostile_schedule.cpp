// SPDX-License-Identifier: Apache-2.0
#include "hostile_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/rng.h"

namespace isthmus::testing_support {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFaults = 4s;  // faults begin within this time
constexpr std::array kKinds = {ReductionKind::kReduce, ReductionKind::kGather,
                               ReductionKind::kCollect};

class Draws {
 public:
  explicit Draws(std::uint64_t seed, std::uint64_t first = 1000)
      : rng_(seed, Stream::kTestData), next_(first) {}
  double uniform() { return rng_.uniform(next_++); }
  bool chance(double probability) { return uniform() < probability; }
  int below(int bound) { return static_cast<int>(uniform() * bound); }
  Duration between(Duration low, Duration high) {
    return low + Duration(std::llround(uniform() * static_cast<double>((high - low).count())));
  }

 private:
  const Rng rng_;
  std::uint64_t next_;
};

void draw_frame_faults(HostileSchedule& schedule, Draws& draws) {
  FaultPlan& faults = schedule.faults;
  for (double* each :
       {&faults.drop, &faults.delay, &faults.duplicate, &faults.reorder, &faults.corrupt}) {
    if (draws.chance(0.6)) *each = 0.08 * draws.uniform();
  }
  faults.longest_delay = draws.between(5ms, 300ms);
}

/// Up to three that a link gets over, and one or two, apart, after which two have lost each other.
void draw_partitions(HostileSchedule& schedule, Draws& draws) {
  FaultPlan& faults = schedule.faults;
  faults.dead_after = 1s;
  const auto add = [&](Duration begin, Duration lasts) {
    const int a = draws.below(schedule.processes());
    const int b = (a + 1 + draws.below(schedule.processes() - 1)) % schedule.processes();
    faults.partitions.push_back({.a = WorkerId(a),
                                 .b = WorkerId(b),
                                 .begin = TimePoint(begin),
                                 .end = TimePoint(begin + lasts),
                                 .one_way = draws.chance(0.5)});
  };
  for (int more = draws.below(4); more > 0; --more) {
    add(draws.between(100ms, kFaults), draws.between(20ms, 900ms));
  }
  if (draws.chance(0.4)) add(draws.between(100ms, 1s), draws.between(1200ms, 2500ms));
  if (draws.chance(0.2)) add(draws.between(5s, 6s), draws.between(1200ms, 2500ms));
}

void draw_events(HostileSchedule& schedule, Draws& draws) {
  using Kind = HostileSchedule::Event::Kind;
  const int first = schedule.hub ? 0 : 1;  // without a hub member 0 has to live
  const auto add = [&](Kind kind) {
    schedule.events.push_back({.at = TimePoint(draws.between(50ms, kFaults)),
                               .kind = kind,
                               .member = first + draws.below(schedule.members - first),
                               .away = draws.between(50ms, 1s),
                               .appends = draws.below(4),
                               .share = draws.chance(0.2) ? 1.0 : draws.uniform()});
  };
  for (int more = draws.below(4); more > 0; --more) add(Kind::kCrash);
  for (int more = draws.below(3); more > 0; --more) add(Kind::kLeave);
  if (schedule.hub) {
    for (int more = draws.below(3); more > 0; --more) add(Kind::kHubCrash);
    for (int more = draws.below(3); more > 0; --more) add(Kind::kHubTears);
  }
  std::ranges::sort(schedule.events, {}, &HostileSchedule::Event::at);
}

/// For a while, for ever or twice; and steps that hang.
void draw_slow_spells(HostileSchedule& schedule, Draws& draws) {
  const auto add = [&](int member, Duration begin, Duration lasts, double factor) {
    const TimePoint end = lasts == Duration::max() ? kNever : TimePoint(begin + lasts);
    schedule.late.slow.push_back(
        {.member = member, .begin = TimePoint(begin), .end = end, .factor = factor});
  };
  for (int more = 1 + draws.below(2); more > 0; --more) {
    const int member = draws.below(schedule.members);
    const double pace = schedule.paces[static_cast<std::size_t>(member)];
    const int kind = draws.below(4);
    const double factor = 3 + 12 * draws.uniform();
    if (kind == 0) add(member, draws.between(0s, 3s), draws.between(300ms, 3s), factor);
    if (kind == 1) add(member, draws.between(0s, kFaults), Duration::max(), 1 + factor / pace);
    for (int twice = 0; kind == 2 && twice < 2; ++twice) {
      add(member, draws.between(0s, kFaults), draws.between(100ms, 1s), factor);
    }
    if (kind == 3) add(member, draws.between(0s, kFaults), 50ms, 10 + 4 * factor);
  }
}

}  // namespace

double HostileSchedule::slowness(int member, TimePoint now) const {
  double factor = 1;
  for (const Late::Slow& spell : late.slow) {
    const bool holds = spell.member == member && spell.begin <= now && now < spell.end;
    if (holds) factor = std::max(factor, spell.factor);
  }
  return factor;
}

bool HostileSchedule::parts_in(TimePoint from, TimePoint to) const {
  return std::ranges::any_of(faults.partitions, [&](const FaultPlan::Partition& cut) {
    return cut.end - cut.begin > faults.dead_after && cut.begin < to && cut.end > from;
  });
}

HostileSchedule draw_schedule(std::uint64_t seed) {
  Draws draws(seed);
  HostileSchedule schedule{.seed = seed,
                           .members = 3 + draws.below(3),
                           .hub = draws.chance(0.5),
                           .kind = kKinds[static_cast<std::size_t>(draws.below(3))],
                           .codec = draws.chance(0.3) ? "int8:256" : "fp32",
                           .open = 1 + draws.below(3)};
  const auto processes = static_cast<std::size_t>(schedule.processes());
  for (std::size_t link = 0; link < processes * processes; ++link) {
    schedule.links.push_back({.bits_per_s = 5'000'000 + std::int64_t{draws.below(95)} * 1'000'000,
                              .one_way = draws.between(1ms, 50ms),
                              .jitter = draws.between(0ms, 5ms)});
  }
  schedule.paces.assign(static_cast<std::size_t>(schedule.members), 1);
  if (draws.chance(0.4)) {  // a slow site
    schedule.paces[static_cast<std::size_t>(draws.below(schedule.members))] =
        2 + 4 * draws.uniform();
  }
  for (std::size_t p = 0; p < processes; ++p) {
    schedule.clocks.push_back({.ahead = draws.between(0s, 48h), .ppm = draws.below(40001) - 20000});
  }
  draw_frame_faults(schedule, draws);
  draw_partitions(schedule, draws);
  draw_events(schedule, draws);
  schedule.quiet = TimePoint(kFaults);
  for (const FaultPlan::Partition& cut : schedule.faults.partitions) {
    schedule.quiet = std::max(schedule.quiet, cut.end);
  }
  schedule.faults.until = schedule.quiet;
  return schedule;
}

// Draws of its own: who adds one here changes no schedule without a deadline.
HostileSchedule draw_late_schedule(std::uint64_t seed) {
  HostileSchedule schedule = draw_schedule(seed);
  schedule.open = std::min(schedule.open, 2);  // one of a fragment, as what it carries has to come
  Draws draws(seed, 1'000'000);
  const bool adapts = draws.chance(0.3), alike = draws.chance(0.5);
  const Duration of_all = draws.between(60ms, 700ms);
  for (int m = 0; m < schedule.members; ++m) {
    const Duration own = alike ? of_all : draws.between(60ms, 700ms);
    schedule.late.deadlines.push_back(adapts ? Duration{0} : own);
  }
  schedule.late.carries = draws.chance(0.7);
  schedule.late.lone_windows = draws.below(4);
  draw_slow_spells(schedule, draws);
  return schedule;
}

}  // namespace isthmus::testing_support
