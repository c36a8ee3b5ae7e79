// SPDX-License-Identifier: Apache-2.0
// A finished run's wall-clock over other links, without training again.
//
// The losses of a run at its steps do not depend on its links, as long as what it sends and when is
// fixed by its configuration (plan/run_program.h says where it is not). So its clock can be played
// again by itself: the workers' programs, the frames of the exchange
// (src/transport/wire/WIRE_FORMAT.md) and the links' own queues (sim/link_queue.h), in integers of
// nanoseconds and in the order in which SimWorld would have them. The times are those that
// simulating the run anew would give, to the nanosecond; tests/plan/retiming_test.cpp holds them
// against it. report/assets/retime.js is the same in the page. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/types.h"
#include "plan/run_program.h"
#include "sim/link.h"

namespace isthmus {

struct RetimingInput {
  const RunProgram& program;
  std::vector<DirectedLink> links;  // workers x workers, row-major [from][to]; empty: free links
  LinkOptions link;                 // how they behave
  std::uint64_t seed = 0;           // of jittered links
  /// Duration of inner step t (from 1) of one worker; nothing where it is idle.
  std::function<std::optional<Duration>(WorkerId worker, StepIndex t)> step_time;
};

/// How far a run has come after one of its steps, final sync included after the last.
struct RetimedStep {
  TimePoint end;                    // of the worker that ends it last
  std::uint64_t payload_bytes = 0;  // sent by the worker that has sent most; unscaled
  std::uint64_t wire_bytes = 0;
};

struct RetimedRun {
  std::vector<RetimedStep> steps;  // t at t - 1
  std::vector<Duration> computed;  // by worker
  Duration longest_wait{0};        // for one round; beyond the patience a run would have failed
  bool too_long = false;           // the clock, whole nanoseconds, ends before the run does:
                                   // nothing else here means anything

  [[nodiscard]] TimePoint end() const { return steps.empty() ? TimePoint{} : steps.back().end; }
  /// Share of its time that a worker computes, mean over the workers.
  [[nodiscard]] double utilisation() const;
};

[[nodiscard]] RetimedRun retime(const RetimingInput& input);

/// What the page's script (report/assets/retime.js) needs to play the run over one link between all
/// members, without jitter and loss: JSON. Of `input` the links and the seed do not matter.
[[nodiscard]] std::string retiming_json(const RetimingInput& input);

/// What a finished run says of itself, to be held against its re-timing at its own links.
struct RecordedEvaluation {
  std::int64_t step = 0;
  double clock_s = 0;  // on the simulated clock
  double payload_bytes = 0;
  double wire_bytes = 0;
};

/// What a run by another version of the program may differ by: how frames are cut, and how links
/// behave, may have become better since.
inline constexpr double kOtherVersionsTolerance = 0.05;

/// Whether `again`, the run re-timed at its own links, is the run: every evaluation at the same
/// nanosecond and after the same bytes; with a `tolerance` above 0 its clock and the bytes on the
/// wire within that share. RETURNS: what differs first, in words; nothing when it is.
[[nodiscard]] std::optional<std::string> differs_from_run(
    const RetimedRun& again, double byte_scale, const std::vector<RecordedEvaluation>& evaluations,
    double tolerance = 0);

}  // namespace isthmus
