// SPDX-License-Identifier: Apache-2.0
// The meeting point of a run's workers: their posts about steps become the lines of metrics.jsonl,
// in step order whatever the workers' order; wishes to stop or to save a checkpoint become one step
// that all agree on. LocalStepCoordinator serves workers in one process, site_step_coordinator.h
// separate sites.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/outer.h"
#include "isthmus/runtime.h"
#include "isthmus/session.h"
#include "record/run_events.h"
#include "session/run/divergence_rule.h"

namespace isthmus::app {

/// Every method may be called from any worker's task, never from a compute region.
class Board {
 public:
  virtual ~Board() = default;
  /// The first call of a worker.
  virtual void attach(Runtime& runtime) = 0;

  virtual void post_step(WorkerId rank, StepIndex t, StepPost post) = 0;
  /// All steps that a worker may post now are posted: they may be sent to the others.
  virtual void posted_steps() {}
  /// Whether each worker belongs to the run at step t, by rank, as far as known now.
  [[nodiscard]] virtual std::vector<bool> present(StepIndex t) = 0;
  virtual void post_eval(WorkerId rank, StepIndex t, const EvalShare& share) = 0;
  /// Call after this worker's share of the last step's evaluation: blocks until the shares of all
  /// other present workers are here. RETURNS: the batches in no share, because a worker was lost or
  /// joined meanwhile; `complete_eval` takes their results. Returns nothing, at once, if workers
  /// cannot be lost one at a time.
  [[nodiscard]] virtual std::vector<std::int64_t> await_eval(StepIndex t) = 0;
  virtual void complete_eval(StepIndex t, const std::vector<EvalPart>& missing) = 0;

  /// Whether `begin_step(t)`, which must follow at once, will not wait: the step has then begun.
  [[nodiscard]] virtual bool may_begin(StepIndex) { return true; }
  /// Begins step t ahead of the worker, unless the run is agreed to end before: `begin_step(t)` may
  /// follow or not. RETURNS: false when that cannot be decided now.
  [[nodiscard]] virtual bool begin_ahead(StepIndex) { return false; }
  /// A worker is about to take step t. `checkpoint_due`: a checkpoint is due by time; only worker
  /// 0's value counts. Blocks while answers of others are needed. RETURNS: whether it may; false
  /// while too few sites are present: all pause after step t - 1 then. Unless that ends the run
  /// (`stop_after`), call again at once. THROWS: PeerError when others cannot be reached; Error
  /// when no site has returned in time.
  [[nodiscard]] virtual bool begin_step(WorkerId rank, StepIndex t, bool checkpoint_due) = 0;
  /// After step t: whether a checkpoint was agreed for it, by time or because of a signal.
  [[nodiscard]] virtual bool checkpoint_after(StepIndex t) = 0;
  /// Whether the run ends after step t because of a signal, and why.
  [[nodiscard]] virtual StopWish stop_after(StepIndex t) = 0;

  /// Between two steps, for workers in separate processes with a shared outer state. The state has
  /// this digest (outer/parts/shared_state.h) after step t. Blocks until all workers that took the
  /// step have reported theirs. RETURNS: whether the digests are equal. THROWS: PeerError when
  /// others cannot be reached; Error when a lost worker cannot be spared.
  [[nodiscard]] virtual bool outer_agrees(StepIndex, const Digest128&) { return true; }
  /// If they differ: reports this worker's replay; blocks until the replays of all others are here.
  /// On return a worker whose replay differs from its state continues from the replay, all others
  /// from their state. THROWS: as outer_agrees; Error when it cannot be decided which state is
  /// wrong.
  virtual void settle_outer(StepIndex, const OuterReplay&) {}

  /// Why the run ended before its last step, once the workers are done; kNone when it did not.
  [[nodiscard]] virtual StopWish stopped() const = 0;
};

/// All state is behind one WaitQueue of the run's runtime, so the board works in real and in
/// virtual time alike. Workers may join and leave: a step's line is written when all workers
/// present at the step have posted, and includes earlier posts of workers that left.
class LocalStepCoordinator final : public Board {
 public:
  /// All workers are present from the first step on. Borrows `log` and `wishes`; `begin_step` obeys
  /// the wishes.
  LocalStepCoordinator(int workers, std::int64_t total_steps, RunLog& log, Wishes& wishes);

  void attach(Runtime& runtime) override;
  void post_step(WorkerId rank, StepIndex t, StepPost post) override;
  [[nodiscard]] std::vector<bool> present(StepIndex t) override;
  void post_eval(WorkerId rank, StepIndex t, const EvalShare& share) override;
  [[nodiscard]] std::vector<std::int64_t> await_eval(StepIndex) override { return {}; }
  void complete_eval(StepIndex t, const std::vector<EvalPart>& missing) override;
  [[nodiscard]] bool begin_ahead(StepIndex t) override;
  [[nodiscard]] bool begin_step(WorkerId rank, StepIndex t, bool checkpoint_due) override;
  [[nodiscard]] bool checkpoint_after(StepIndex t) override;
  [[nodiscard]] StopWish stop_after(StepIndex t) override;
  [[nodiscard]] StopWish stopped() const override { return stop_wish_; }

  /// The outcome of a joined worker's earlier work.
  void came_back(WorkerId rank, StepIndex t, const RejoinReport& work);
  /// The worker's outer state was wrong after step t, and has been healed.
  void healed(WorkerId rank, StepIndex t, const std::string& why);
  /// Worker `rank` posts no more; later posts are dropped.
  void leave(WorkerId rank, const std::string& why);
  /// It posts every step up to `after`, then no more.
  void leave_after(WorkerId rank, StepIndex after, const std::string& why);
  /// No line follows those of step `after`, whatever others post: this site is in the run up to
  /// that step.
  void end_after(StepIndex after);
  /// It posts every step after `after`; posts about earlier steps are dropped.
  void join(WorkerId rank, StepIndex after);
  /// In a run that others have begun: no worker is present, so no line is written, until `start`.
  void stand_by();
  /// `self` joins the present workers; the lines begin with the step after `after`.
  void start(WorkerId self, const std::vector<bool>& present, StepIndex after);

  /// Blocks until the missing batches of the last step's evaluation, t, are known. RETURNS: these
  /// batches; nothing after `abandon`.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> await_missing(StepIndex t);
  /// Blocks until the lines up to step t, including its evaluation, have been written. RETURNS:
  /// false after `abandon`.
  [[nodiscard]] bool await_lines(StepIndex t);
  /// A worker that cannot be spared will not post any more.
  void abandon();

 private:
  static constexpr std::int64_t kGone = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kStays = kGone;
  using PendingStep = std::map<int, StepPost>;  // by rank
  struct PendingEval {
    std::map<std::int64_t, EvalPart> parts;  // by batch: summed in this order
    std::set<int> posted;                    // ranks
    std::int64_t batches = 0;
    TimePoint now;
  };

  [[nodiscard]] bool expected(int rank, std::int64_t t) const;
  /// Whether all workers expected at step t are among `posted`.
  template <typename Posted>
  [[nodiscard]] bool all_posted(std::int64_t t, const Posted& posted) const;
  void hand_on();
  void hand_on_step();
  void hand_on_eval();
  [[nodiscard]] bool eval_is_due() const;
  [[nodiscard]] static std::vector<std::int64_t> missing(const PendingEval& eval);
  void tell(RunEvent event);

  const int workers_;
  const std::int64_t total_steps_;
  RunLog& log_;
  Wishes& wishes_;
  std::once_flag attached_;
  std::unique_ptr<WaitQueue> queue_;
  std::vector<std::int64_t> after_;  // by worker: it posts steps after this one; kGone
  std::vector<std::int64_t> until_;  // by worker: and up to this one; kStays
  std::map<std::int64_t, PendingStep> steps_;
  std::map<std::int64_t, PendingEval> evals_;
  /// Joins and leaves not yet written, by the step after which they hold.
  std::multimap<std::int64_t, RunEvent> changes_;
  std::int64_t furthest_begun_ = 0;
  std::int64_t last_line_ = 0;  // step that all have posted
  bool abandoned_ = false;
  std::set<std::int64_t> checkpoint_steps_;  // agreed by time; few, since minutes apart
  std::optional<std::int64_t> stop_step_;
  StopWish stop_wish_ = StopWish::kNone;
};

}  // namespace isthmus::app
