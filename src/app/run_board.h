// SPDX-License-Identifier: Apache-2.0
// Where the workers of a run meet: what each posts about its steps becomes the lines of
// metrics.jsonl, in step order whatever the workers' order; wishes to stop or to checkpoint become
// one step that all agree on. RunBoard is that of workers in one process; site_board.h has that of
// sites apart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "app/signals.h"
#include "isthmus/outer.h"
#include "isthmus/runtime.h"

namespace isthmus::app {

/// One worker's word about one step.
struct StepPost {
  StepReport report;
  double learning_rate = 0;
  TimePoint now;         // on the run's clock, after the step
  ByteCounts sent;       // by this worker, since its start
  Duration computed{0};  // on the run's clock, since its start
};

/// Sum of losses over one batch of evaluation windows.
struct EvalPart {
  std::int64_t batch = 0;  // place in the fixed order of batches
  double loss_sum = 0;     // mean loss of the batch times its targets
  std::int64_t tokens = 0;
};

struct EvalResult {
  StepIndex step;
  double loss = 0;
  std::int64_t tokens = 0;
  TimePoint now;
};

/// Receives what all workers have completed; called in step order, one call at a time.
class RunLog {
 public:
  virtual ~RunLog() = default;
  /// posts: one of each worker, in rank order.
  virtual void step(StepIndex t, const std::vector<StepPost>& posts) = 0;
  virtual void eval(const EvalResult& result) = 0;
};

/// Every method may be called from any worker's task, never from a compute region.
class Board {
 public:
  virtual ~Board() = default;
  /// First thing a worker does.
  virtual void attach(Runtime& runtime) = 0;

  virtual void post_step(Rank rank, StepIndex t, StepPost post) = 0;
  virtual void post_eval(Rank rank, StepIndex t, const std::vector<EvalPart>& parts,
                         TimePoint now) = 0;

  /// A worker is about to take step t. `checkpoint_due`: a checkpoint is due by time; only worker
  /// 0's word counts. Blocks while others have to be heard. THROWS: PeerError when they cannot be.
  virtual void begin_step(Rank rank, StepIndex t, bool checkpoint_due) = 0;
  /// After step t: whether a checkpoint was agreed for it, by time or because of a signal.
  [[nodiscard]] virtual bool checkpoint_after(StepIndex t) = 0;
  /// Whether the run ends after step t because of a signal, and why.
  [[nodiscard]] virtual StopWish stop_after(StepIndex t) = 0;

  /// Why the run ended before its last step, once the workers are done; kNone when it did not.
  [[nodiscard]] virtual StopWish stopped() const = 0;
};

/// All state is behind one WaitQueue of the run's runtime, so the board works in real and in
/// virtual time alike.
class RunBoard final : public Board {
 public:
  RunBoard(int workers, std::int64_t total_steps, RunLog& log);

  void attach(Runtime& runtime) override;
  void post_step(Rank rank, StepIndex t, StepPost post) override;
  void post_eval(Rank rank, StepIndex t, const std::vector<EvalPart>& parts,
                 TimePoint now) override;
  void begin_step(Rank rank, StepIndex t, bool checkpoint_due) override;
  [[nodiscard]] bool checkpoint_after(StepIndex t) override;
  [[nodiscard]] StopWish stop_after(StepIndex t) override;
  [[nodiscard]] StopWish stopped() const override { return stop_wish_; }

  /// Blocks until the lines up to step t, its evaluation's too, have been handed on.
  /// RETURNS: false once `abandon` was called.
  [[nodiscard]] bool await_lines(StepIndex t);
  /// Some worker will not post any more.
  void abandon();

 private:
  struct PendingStep {
    std::vector<std::optional<StepPost>> posts;
    int posted = 0;
  };
  struct PendingEval {
    std::map<std::int64_t, EvalPart> parts;  // by batch: summed in this order
    int posted = 0;
    TimePoint now;
  };

  void hand_on();

  const int workers_;
  const std::int64_t total_steps_;
  RunLog& log_;
  std::once_flag attached_;
  std::unique_ptr<WaitQueue> queue_;
  std::map<std::int64_t, PendingStep> steps_;
  std::map<std::int64_t, PendingEval> evals_;
  std::int64_t furthest_begun_ = 0;
  std::int64_t last_line_ = 0;  // step all have posted
  bool abandoned_ = false;
  std::set<std::int64_t> checkpoint_steps_;  // agreed by time; few, since minutes apart
  std::optional<std::int64_t> stop_step_;
  StopWish stop_wish_ = StopWish::kNone;
};

}  // namespace isthmus::app
