// SPDX-License-Identifier: Apache-2.0
// Where the workers of a run meet: what each posts about its steps becomes the lines of
// metrics.jsonl, in step order whatever the workers' order; wishes to stop or to checkpoint become
// one step that all agree on. RunBoard is that of workers in one process; site_board.h has that of
// sites apart.
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
#include "session/run/outer_verdict.h"

namespace isthmus::app {

/// Every method may be called from any worker's task, never from a compute region.
class Board {
 public:
  virtual ~Board() = default;
  /// First thing a worker does.
  virtual void attach(Runtime& runtime) = 0;

  virtual void post_step(WorkerId rank, StepIndex t, StepPost post) = 0;
  /// All steps that a worker may post now are posted: the others may be told.
  virtual void posted_steps() {}
  /// Which workers belong to the run at step t, by rank, as far as known now.
  [[nodiscard]] virtual std::vector<bool> present(StepIndex t) = 0;
  virtual void post_eval(WorkerId rank, StepIndex t, const EvalShare& share) = 0;
  /// After this worker's share of the last step's evaluation: blocks until those of all others that
  /// are there have come. RETURNS: the batches that are in none of them, since somebody went away
  /// or came; `complete_eval` takes them. Nothing, at once, where nobody can go away alone.
  [[nodiscard]] virtual std::vector<std::int64_t> await_eval(StepIndex t) = 0;
  virtual void complete_eval(StepIndex t, const std::vector<EvalPart>& missing) = 0;

  /// Whether `begin_step` of it, which follows at once, waits for nobody: it has begun then.
  [[nodiscard]] virtual bool may_begin(StepIndex) { return true; }
  /// The worker will take step t, unless the run has been agreed to end before: t has begun, and
  /// `begin_step` of it may follow or not. RETURNS: false where that cannot be said now.
  [[nodiscard]] virtual bool begin_ahead(StepIndex) { return false; }
  /// A worker is about to take step t. `checkpoint_due`: a checkpoint is due by time; only worker
  /// 0's word counts. Blocks while others have to be heard. RETURNS: whether it may; not while too
  /// few sites are there: all stand after step t - 1 then. If that does not end the run
  /// (`stop_after`), this is to be asked again at once.
  /// THROWS: PeerError when others cannot be heard; Error when nobody has come back in time.
  [[nodiscard]] virtual bool begin_step(WorkerId rank, StepIndex t, bool checkpoint_due) = 0;
  /// After step t: whether a checkpoint was agreed for it, by time or because of a signal.
  [[nodiscard]] virtual bool checkpoint_after(StepIndex t) = 0;
  /// Whether the run ends after step t because of a signal, and why.
  [[nodiscard]] virtual StopWish stop_after(StepIndex t) = 0;

  /// Between two steps, by workers that are processes of their own and share their outer state,
  /// which has this digest (outer/parts/shared_state.h) after step t: blocks until all who took the
  /// step have told theirs. RETURNS: whether these are alike. THROWS: PeerError when others cannot
  /// be heard; Error when one cannot be spared.
  [[nodiscard]] virtual bool outer_agrees(StepIndex, const Digest128&) { return true; }
  /// Where they are not: what this worker's replay has come to; blocks until all others' are there.
  /// On return a worker whose replay is not what it held goes on from its replay, all others from
  /// what they hold. THROWS: as outer_agrees; Error when it cannot be decided who is wrong.
  virtual void settle_outer(StepIndex, const OuterReplay&) {}

  /// Why the run ended before its last step, once the workers are done; kNone when it did not.
  [[nodiscard]] virtual StopWish stopped() const = 0;
};

/// All state is behind one WaitQueue of the run's runtime, so the board works in real and in
/// virtual time alike. Workers may come and go: a step's line is handed on when everybody who is
/// present at it has posted, and holds what those who went away had posted before.
class RunBoard final : public Board {
 public:
  /// All workers are present from the first step on. Borrows `log` and `wishes`, which
  /// `begin_step` obeys.
  RunBoard(int workers, std::int64_t total_steps, RunLog& log, Wishes& wishes);

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

  /// What became of its work of before, at a worker that has joined.
  void came_back(WorkerId rank, StepIndex t, const BroughtBack& work);
  /// The worker's outer state was not right after step t, and is now.
  void healed(WorkerId rank, StepIndex t, const std::string& why);
  /// Worker `rank` posts no more; what it posts nevertheless is dropped.
  void leave(WorkerId rank, const std::string& why);
  /// It posts every step up to `after`, then no more.
  void leave_after(WorkerId rank, StepIndex after, const std::string& why);
  /// No line follows those of step `after`, whatever others post: this site is in the run till
  /// then.
  void end_after(StepIndex after);
  /// It posts every step after `after`; what it posts about earlier ones is dropped.
  void join(WorkerId rank, StepIndex after);
  /// In a run that others have begun: nobody is present, so nothing is handed on, until `start`.
  void stand_by();
  /// `self` joins those present, and the lines begin with the step after `after`.
  void start(WorkerId self, const std::vector<bool>& present, StepIndex after);

  /// Blocks until the evaluation after the last step, t, can be judged.
  /// RETURNS: the batches it lacks; nothing once `abandon` was called.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> await_missing(StepIndex t);
  /// Blocks until the lines up to step t, its evaluation's too, have been handed on.
  /// RETURNS: false once `abandon` was called.
  [[nodiscard]] bool await_lines(StepIndex t);
  /// Some worker that cannot be spared will not post any more.
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
  /// Whether everybody expected at step t is among `posted`.
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
  std::vector<std::int64_t> after_;  // by worker: it posts the steps after this one; kGone
  std::vector<std::int64_t> until_;  // by worker: and up to this one; kStays
  std::map<std::int64_t, PendingStep> steps_;
  std::map<std::int64_t, PendingEval> evals_;
  /// Who comes and goes, by the step after which it holds, not told of yet.
  std::multimap<std::int64_t, RunEvent> changes_;
  std::int64_t furthest_begun_ = 0;
  std::int64_t last_line_ = 0;  // step all have posted
  bool abandoned_ = false;
  std::set<std::int64_t> checkpoint_steps_;  // agreed by time; few, since minutes apart
  std::optional<std::int64_t> stop_step_;
  StopWish stop_wish_ = StopWish::kNone;
};

}  // namespace isthmus::app
