// SPDX-License-Identifier: Apache-2.0
// What happens to one simulated run: everything is drawn from the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "sim/faults.h"
#include "sim/link.h"

namespace isthmus::testing_support {

struct HostileSchedule {
  std::uint64_t seed = 0;
  int members = 3;
  bool hub = false;  // behind the members, with a log on a disk
  ReductionKind kind = ReductionKind::kReduce;
  std::string codec = "fp32";
  int open = 1;                     // rounds under way at most
  std::vector<DirectedLink> links;  // of all processes
  FaultPlan faults;                 // of frames and links
  std::vector<double> paces;        // by member: its steps take so many times as long
  struct Clock {
    Duration ahead{0};
    std::int64_t ppm = 0;
  };
  std::vector<Clock> clocks;  // by process
  struct Event {
    enum class Kind { kCrash, kLeave, kHubCrash, kHubTears };
    TimePoint at;
    Kind kind = Kind::kCrash;
    int member = 0;    // of the first two
    Duration away{0};  // then its next process comes, with the disk of the last one
    int appends = 0;   // of the last: to the log, before the one that is cut off
    double share = 0;  // what is written of that
  };
  std::vector<Event> events;  // in order
  /// Rounds have a deadline, and sites are slow; without, nothing here holds.
  struct Late {
    std::vector<Duration> deadlines;  // by member; 0: adapts; empty: none
    bool carries = true;              // what a round has not counted comes with the next one
    int lone_windows = 0;             // at most, that who was left out trains on alone
    struct Slow {
      int member = 0;
      TimePoint begin, end;
      double factor = 1;  // so many times as long do its steps take
    };
    std::vector<Slow> slow;
  };
  Late late;
  TimePoint quiet;  // nothing of `faults` happens later

  [[nodiscard]] int processes() const { return members + (hub ? 1 : 0); }
  /// Whether a partition after which two count each other as lost stands somewhere in [from, to).
  [[nodiscard]] bool parts_in(TimePoint from, TimePoint to) const;
  [[nodiscard]] bool has_deadline() const { return !late.deadlines.empty(); }
  /// How many times as long as its pace has it a member's step takes that begins now.
  [[nodiscard]] double slowness(int member, TimePoint now) const;
};

[[nodiscard]] HostileSchedule draw_schedule(std::uint64_t seed);
/// The same in all else, with a deadline and slow sites.
[[nodiscard]] HostileSchedule draw_late_schedule(std::uint64_t seed);

}  // namespace isthmus::testing_support
