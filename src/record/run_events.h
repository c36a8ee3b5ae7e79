// SPDX-License-Identifier: Apache-2.0
// What the workers of a run tell of their steps and evaluations, and who receives what all of them
// have completed. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/runtime.h"

namespace isthmus::app {

/// One worker's word about one step.
struct StepPost {
  WorkerId rank;  // whose word; the board sets it
  StepReport report;
  double learning_rate = 0;
  TimePoint now;         // on the run's clock, after the step
  ByteCounts sent;       // by this worker, since its start
  Duration computed{0};  // on the run's clock, since its start
};

/// One worker's word about an evaluation.
struct EvalShare {
  std::vector<EvalPart> parts;
  std::int64_t batches = 0;  // that the whole evaluation has; 0: as others say
  TimePoint now;
};

struct EvalResult {
  StepIndex step;
  double loss = 0;
  std::int64_t tokens = 0;
  TimePoint now;
  std::vector<EvalPart> parts = {};  // that `loss` is the mean of, in order
};

/// What became of the work of a worker that was cut off and has joined again.
struct BroughtBack {
  std::int64_t kept_tokens = 0;   // that its next contribution holds, of what nobody had
  std::int64_t lost_tokens = 0;   // that are gone
  std::int64_t alone_steps = 0;   // that it took while it was cut off
  std::int64_t alone_tokens = 0;  // on so many, which are among the others
};

/// What happened to a run beside its steps.
struct RunEvent {
  enum class Kind { kLeft, kJoined, kEvalIncomplete, kCameBack, kHealed };
  Kind kind = Kind::kLeft;
  StepIndex step;            // it holds after this one
  WorkerId who;              // has left, joined or been healed
  int present = 0;           // workers there are now
  std::int64_t of = 0;       // of an evaluation: its batches
  std::int64_t missing = 0;  // and how many of them nobody has evaluated
  BroughtBack work = {};     // kCameBack
  std::string why;
};

/// Receives what all workers have completed; called in step order, one call at a time.
class RunLog {
 public:
  virtual ~RunLog() = default;
  /// posts: one of each worker that took the step, in rank order; at least one.
  virtual void step(StepIndex t, const std::vector<StepPost>& posts) = 0;
  virtual void eval(const EvalResult& result) = 0;
  virtual void event(const RunEvent& event) = 0;
};

}  // namespace isthmus::app
