// SPDX-License-Identifier: Apache-2.0
// Reports of a run's workers about their steps and evaluations, and the receiver of completed ones.
// Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/runtime.h"

namespace isthmus::app {

/// One worker's report about one step.
struct StepPost {
  WorkerId rank;  // of the reporting worker; set by the board
  StepReport report;
  double learning_rate = 0;
  TimePoint now;         // on the run's clock, after the step
  ByteCounts sent;       // by this worker, since its start
  Duration computed{0};  // on the run's clock, since its start
};

/// One worker's report about an evaluation.
struct EvalShare {
  std::vector<EvalPart> parts;
  std::int64_t batches = 0;  // of the whole evaluation; 0: as others report
  TimePoint now;
};

struct EvalResult {
  StepIndex step;
  double loss = 0;
  std::int64_t tokens = 0;
  TimePoint now;
  std::vector<EvalPart> parts = {};  // the parts in the mean `loss`, in order
};

/// The outcome of the work of a worker that was cut off and has rejoined.
struct RejoinReport {
  std::int64_t kept_tokens = 0;   // in its next contribution, and in no earlier one
  std::int64_t lost_tokens = 0;   // lost
  std::int64_t alone_steps = 0;   // taken while it was cut off
  std::int64_t alone_tokens = 0;  // of these steps; part of kept and lost tokens
};

/// An event of a run other than its steps.
struct RunEvent {
  enum class Kind { kLeft, kJoined, kEvalIncomplete, kCameBack, kHealed };
  Kind kind = Kind::kLeft;
  StepIndex step;            // after which it holds
  WorkerId who;              // that left, joined or was healed
  int present = 0;           // workers present afterwards
  std::int64_t of = 0;       // of an evaluation: its batches
  std::int64_t missing = 0;  // and batches that no worker has evaluated
  RejoinReport work = {};    // kCameBack
  std::string why;
};

/// Receives steps and evaluations that all workers have completed; in step order, one call at a
/// time.
class RunLog {
 public:
  virtual ~RunLog() = default;
  /// posts: one of each worker that took the step, in rank order; at least one.
  virtual void step(StepIndex t, const std::vector<StepPost>& posts) = 0;
  virtual void eval(const EvalResult& result) = 0;
  virtual void event(const RunEvent& event) = 0;
};

}  // namespace isthmus::app
