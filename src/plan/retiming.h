// SPDX-License-Identifier: Apache-2.0
// A finished run's wall-clock over other links, without training again.
//
// The losses of a run at its steps do not depend on its links if its configuration fixes the bytes
// that it sends, and when (plan/run_program.h names the exceptions). So its clock can be recomputed
// alone: the workers' programs, the frames of the exchange (src/transport/wire/WIRE_FORMAT.md) and
// the links' queues (sim/link_queue.h), in integer nanoseconds and in SimWorld's order of events.
// The times equal those of a new simulation to the nanosecond; tests/plan/retiming_test.cpp
// compares them. Pure functions; any thread.
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
  LinkOptions link;                 // their options
  std::uint64_t seed = 0;           // of jittered links
  /// Duration of inner step t (from 1) of one worker; nothing for an idle step.
  std::function<std::optional<Duration>(WorkerId worker, StepIndex t)> step_time;
};

/// The progress of a run after one of its steps; after the last step with the final sync.
struct RetimedStep {
  TimePoint end;                    // of the last worker that ends the step
  std::uint64_t payload_bytes = 0;  // by the worker with the most bytes; unscaled
  std::uint64_t wire_bytes = 0;
};

struct RetimedRun {
  std::vector<RetimedStep> steps;  // t at t - 1
  std::vector<Duration> computed;  // by worker
  Duration longest_wait{0};        // for one round; above the timeout a run would have failed
  bool too_long = false;           // the clock, in whole nanoseconds, ends before the run: no other
                                   // field is valid then

  [[nodiscard]] TimePoint end() const { return steps.empty() ? TimePoint{} : steps.back().end; }
  /// Share of the time that a worker computes, mean over the workers.
  [[nodiscard]] double utilisation() const;
};

[[nodiscard]] RetimedRun retime(const RetimingInput& input);

/// Recorded results of a finished run, to compare with its re-timing at its own links.
struct RecordedEvaluation {
  std::int64_t step = 0;
  double clock_s = 0;  // on the simulated clock
  double payload_bytes = 0;
  double wire_bytes = 0;
};

/// Tolerance for runs of another version of the program: cutting of frames and models of links may
/// have changed.
inline constexpr double kOtherVersionsTolerance = 0.05;

/// Compares `again`, the run re-timed at its own links, with the run: every evaluation at the same
/// nanosecond and after the same bytes; with a `tolerance` above 0 clock and wire bytes within that
/// share. RETURNS: the first difference, in words; nothing if there is none.
[[nodiscard]] std::optional<std::string> differs_from_run(
    const RetimedRun& again, double byte_scale, const std::vector<RecordedEvaluation>& evaluations,
    double tolerance = 0);

}  // namespace isthmus
