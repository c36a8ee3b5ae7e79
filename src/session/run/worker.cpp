// SPDX-License-Identifier: Apache-2.0
#include "session/run/worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/base/all_elements.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/state/state_memory.h"
#include "isthmus/errors.h"
#include "outer/parts/idle_inner_loop.h"
#include "outer/parts/late_rounds.h"
#include "outer/parts/shared_state.h"
#include "outer/parts/start_check.h"
#include "session/run/outer_healing.h"
#include "session/run/run_settings.h"
#include "session/run/run_start.h"
#include "session/run/worker_evaluation.h"
#include "session/run/worker_state.h"
#include "sim/fault_schedule.h"

namespace isthmus::app {
namespace {

/// The trainer knows the strategy while the strategy takes a step.
struct Stepping {
  Stepping(Trainer& of, const OuterStrategy& strategy) : trainer(of) { of.stepping(&strategy); }
  ~Stepping() { trainer.stepping(nullptr); }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;
  Trainer& trainer;
};

/// How many steps take about as long as a wish of the run's user may wait.
class Stride {
 public:
  /// Step t begins now.
  [[nodiscard]] std::int64_t steps(TimePoint now, StepIndex t) {
    std::int64_t fit = 1;
    if (taken_ && t > taken_->first && now > taken_->second) {
      const Duration step = (now - taken_->second) / (t.value() - taken_->first.value());
      fit = std::clamp<std::int64_t>(kWait / std::max(step, Duration(1)), 1, kMost);
    }
    taken_.emplace(t, now);
    return fit;
  }

 private:
  static constexpr Duration kWait = std::chrono::milliseconds(100);
  static constexpr std::int64_t kMost = 16;
  std::optional<std::pair<StepIndex, TimePoint>> taken_;
};

class Worker {
 public:
  Worker(const WorkerSetup& setup, WorkerContext& context)
      : setup_(setup),
        context_(context),
        trainer_(setup.make(context, setup.events)),
        timed_(trainer_->loop(), context.runtime, context.rank,
               make_step_clock(setup.config, context.rank, setup.step_flops, setup.measured_step),
               setup.events,
               setup.config.sites[static_cast<std::size_t>(context.rank.value())].pace),
        inner_(timed_) {
    timed_.set_profile(fault_pace(
        setup.config.faults,
        setup.config.sites[static_cast<std::size_t>(context.rank.value())].name, setup.begun));
    if (setup.site != nullptr && setup.config.net.deadline) {
      timed_.set_skips([site = setup.site](StepIndex t) { return site->skips(t); });
    }
    may_train_ahead_ = trains_ahead();
    if (setup.retained != nullptr && setup.site != nullptr) retain(*setup.retained);
    const std::unique_ptr<StateReader> taken_over =
        setup.site != nullptr ? setup.site->take_state() : nullptr;
    const bool begins = !taken_over && !setup.checkpointing.resumes();
    if (taken_over) {
      restore_worker_parameters(*taken_over, inner_);
    } else {
      setup.checkpointing.restore_parameters(context.rank, inner_);
    }
    if (begins && setup.config.net.start == "first") {
      take_first_values(inner_, context.exchange, setup.patience);
    }
    if (begins && setup.config.train.trainer == "external") {  // the built-in one's are checked
      inner_.read_values(all_elements(inner_));
      outer::check_finite_start(inner_.parameters());
    }
    strategy_ = make_strategy();
    if (taken_over) {
      restore_worker_state(*taken_over, inner_, *strategy_);
      catch_up();
    } else {
      restore_from_checkpoint(*strategy_);
      started_after_ = strategy_->steps();
      if (setup.pending_delta && setup.pending_delta->work) {
        log_info("all go on from a checkpoint: what this site has trained on since comes again");
        setup.pending_delta->work.reset();
      }
    }
    keep_copy();
    if (setup.tell_outer && strategy_->shared_anchors()) {
      const Digest128 digest = outer::shared_digest(*strategy_, inner_.parameters().size());
      const bool own_start =
          begins && lays_down_start(setup.config) && setup.config.net.start == "same";
      setup.tell_outer(strategy_->steps(), digest,
                       own_start ? digests_of_start(inner_) : std::string());
      if (healing_) healing_->agreed(strategy_->steps(), digest);
    }
    if (begins && lays_down_start(setup.config)) {
      setup.checkpointing.lay_down(context.rank, strategy_->steps(), inner_, *strategy_);
      started_after_.reset();
    }
  }

  /// Hands over the work that no other site has, and the model too if training on it is possible.
  /// REQUIRES: `run` has ended with PeerError; the worker does nothing more.
  void leave_off(PendingDelta& hand) {
    trainer_->stop_training_ahead();
    hand.training.reset();
    hand.work = uncommitted_delta();  // replaces the earlier delta
    const auto* const carries = dynamic_cast<const outer::CarriesWork*>(strategy_.get());
    const bool something = carries != nullptr && carries->carries() && hand.work;
    if (something && setup_.config.net.max_solo_rounds > 0) {
      hand.training = std::make_unique<OfflineTraining>(
          OfflineTraining::Parts{.config = setup_.config,
                                 .plan = setup_.plan,
                                 .self = context_.rank,
                                 .trainer = std::move(trainer_),
                                 .work = *std::move(hand.work),
                                 .fragments = carries->fragments()});
      hand.work.reset();
      strategy_.reset();  // it has gone on beside the model's steps
    } else if (!something && !std::exchange(hand.told, true)) {
      log_info(
          "this site does not train on alone, since it could not take that along ({}): it waits",
          carries == nullptr    ? "outer.method = " + setup_.config.method
          : !carries->carries() ? "outer.carry"
                                : "train.offload, or a lack of memory");
    }
  }

  void run() {
    while (strategy_->steps().value() < setup_.plan.total_steps) {
      const StepIndex t(strategy_->steps().value() + 1);
      if (t > ahead_) {
        if (!begin(t)) return;
        train_ahead(t);
      }
      try {
        settle(strategy_->steps());  // that all commit after it may have been heard just now
        step(t);
      } catch (const TakenBackError& error) {
        go_back(error.what());
        continue;
      }
      const StopWish wish = setup_.board.stop_after(t);
      const bool last = t.value() == setup_.plan.total_steps;
      const bool lays_down = last || wish != StopWish::kNone || checkpoint_due(t);
      const std::optional<Digest128> agreed = lays_down ? agree(t) : std::nullopt;
      // A joiner is given the state after a step, and the trainer's state must be of the same step.
      if (setup_.site != nullptr && t >= ahead_) setup_.site->after_step(t, inner_, *strategy_);
      if (setup_.plan.evaluates_after(t)) {
        evaluate_share(setup_, context_, *trainer_, inner_, *strategy_, t);
      }
      if (lays_down) {
        if (agreed && healing_) healing_->agreed(t, *agreed);  // gives its room on the disk back
        setup_.checkpointing.lay_down(context_.rank, t, inner_, *strategy_);
      }
      if (wish != StopWish::kNone) {
        return;
      }
    }
  }

  void finish() { trainer_->finish(); }

 private:
  /// Not where a step may turn out not to be this worker's, or may be taken back.
  [[nodiscard]] bool trains_ahead() const {
    const SiteConfig& own = setup_.config.sites[static_cast<std::size_t>(context_.rank.value())];
    return trainer_->trains_ahead() && !context_.runtime.simulated() && own.pace == 1 &&
           !setup_.config.net.deadline && !(setup_.site != nullptr && setup_.site->takes_back());
  }

  void retain(RetainedResults& results) {
    retaining_.emplace(context_.exchange, results,
                       [this](const SyncId& id) { return setup_.site->origin_of(id); });
    healing_.emplace(
        OuterHealing::Parts{.inner = inner_,
                            .results = results,
                            .exchange = *retaining_,
                            .make = [this] { return make_strategy(); },
                            .restore = [this](StepIndex t) { return restore_agreed(t); },
                            .last_step = StepIndex(setup_.plan.total_steps)});
  }

  /// Restores the state beside the parameters from the checkpoint that the run resumes from.
  void restore_from_checkpoint(OuterStrategy& strategy) {
    setup_.checkpointing.restore_state(context_.rank, inner_, strategy);
    if (setup_.growth) trainer_->data_grew(*setup_.growth);
  }

  [[nodiscard]] std::optional<outer::UncommittedDelta> uncommitted_delta() const {
    const auto* const carries = dynamic_cast<const outer::CarriesWork*>(strategy_.get());
    if (carries == nullptr) return std::nullopt;
    if (StateMemory::current() != nullptr) {  // it would be as large as the model, and in memory
      log_info("with train.offload no work of an open window is taken along");
      return std::nullopt;
    }
    try {
      return carries->uncommitted_delta();
    } catch (const std::exception& error) {  // for want of memory, or of the model's own ranks
      log_warning("the uncommitted work of this site is lost: {}", error.what());
      return std::nullopt;
    }
  }

  [[nodiscard]] Exchange& exchange() {
    return retaining_ ? static_cast<Exchange&>(*retaining_) : context_.exchange;
  }

  [[nodiscard]] std::unique_ptr<OuterStrategy> make_strategy() {
    OuterOptions options = setup_.config.outer;
    options.patience = setup_.patience;
    options.spsa.run_key = run_key(setup_.config.run.seed, Stream::kSpsa);
    return trainer_->make_strategy(setup_.config.method, options, inner_, exchange());
  }

  /// Takes the steps that the run takes meanwhile, on another worker's results, until all have
  /// agreed on one after which this worker trains.
  void catch_up() {
    strategy_->forget_own_work();  // the donor's, until then
    inner_.set_idle(true);
    while (setup_.site->may_replay(StepIndex(strategy_->steps().value() + 1), setup_.patience)) {
      static_cast<void>(strategy_->step());
    }
    static_cast<void>(outer::apply_late(*strategy_));  // as all others have, after this step
    inner_.set_idle(false);
    strategy_->forget_own_work();
    take_up_own_work();
    setup_.checkpointing.lay_down(context_.rank, strategy_->steps(), inner_, *strategy_);
    if (setup_.pending_delta)
      setup_.pending_delta->work.reset();  // not before: cut off again, it comes again
  }

  void take_up_own_work() {
    if (!setup_.pending_delta || !setup_.pending_delta->work) return;
    const outer::UncommittedDelta& work = *setup_.pending_delta->work;
    auto* const carries = dynamic_cast<outer::CarriesWork*>(strategy_.get());
    // Where the others have gone back behind it, it is to be trained again.
    const bool ahead = strategy_->steps() >= work.step;
    const outer::CarriesWork::Kept kept =
        carries != nullptr && ahead
            ? carries->carry(work)
            : outer::CarriesWork::Kept{.tokens = 0, .lost_tokens = work.all_tokens()};
    log_info(
        "of the uncommitted work of this site by step {}, {} tokens come along with its next "
        "contribution, and {} are lost",
        work.trained.value(), kept.tokens, kept.lost_tokens);
    if (kept.tokens > 0 && work.trained > strategy_->steps()) {
      log_info("it is ahead of the others: its samples of steps {} to {} are taken twice",
               strategy_->steps().value() + 1, work.trained.value());
    }
    if (setup_.on_own_work) {
      setup_.on_own_work(strategy_->steps(), {.kept_tokens = kept.tokens,
                                              .lost_tokens = kept.lost_tokens,
                                              .alone_steps = work.alone_steps,
                                              .alone_tokens = work.alone_tokens});
    }
  }

  /// RETURNS: false when the run ends here, at a step where all sites stood and too few are
  /// present. A site that comes back is given the state of this step.
  [[nodiscard]] bool begin(StepIndex t) {
    const auto may = [&] {
      give_what_is_being_sent(t);
      const bool due = (context_.rank == WorkerId(0) || setup_.site != nullptr) &&
                       setup_.checkpointing.due_by_time();
      return setup_.board.begin_step(context_.rank, t, due);
    };
    while (!may()) {
      if (setup_.board.stop_after(strategy_->steps()) != StopWish::kNone) return false;
      setup_.site->after_step(strategy_->steps(), inner_, *strategy_, true);
    }
    return true;
  }

  /// Step t is about to be taken: says up to which step the trainer needs to hear nothing, so that
  /// it does not wait for this thread between two steps.
  void train_ahead(StepIndex t) {
    const TimePoint now = context_.runtime.clock().now();
    const std::int64_t steps = stride_.steps(now, t);
    ahead_ = t;
    if (!may_train_ahead_) return;
    const std::int64_t most = std::min(strategy_->next_use().value(), t.value() + steps - 1);
    while (ahead_.value() < most) {
      const StepIndex next(ahead_.value() + 1);
      if (workers_meet_after(ahead_) || !setup_.board.begin_ahead(next)) break;
      // Since the next step has begun nothing new is agreed on for the end of this one.
      if (workers_meet_after(ahead_)) break;
      ahead_ = next;
    }
    trainer_->may_train_until(ahead_);
  }

  /// Sites that share their outer state compare it before they write it. A site whose state is
  /// wrong continues from its replay. RETURNS: the digest that all sites have.
  [[nodiscard]] std::optional<Digest128> agree(StepIndex t) {
    if (setup_.site == nullptr || !strategy_->shared_anchors()) return std::nullopt;
    const auto digest = [&] {
      return outer::shared_digest(*strategy_, inner_.parameters().size());
    };
    const Digest128 held = digest();
    if (setup_.board.outer_agrees(t, held)) return held;
    const OuterReplay replay =
        healing_ ? healing_->replay(strategy_, held)
                 : OuterReplay{.digest = {}, .why = "net.heal: no results are retained"};
    setup_.board.settle_outer(t, replay);
    keep_copy();
    return digest();
  }

  /// The state after step t, of which all had the same outer part.
  [[nodiscard]] std::unique_ptr<OuterStrategy> restore_agreed(StepIndex t) {
    if (t == started_after_) {
      trainer_->restart();
      setup_.checkpointing.restore_parameters(context_.rank, inner_);
      std::unique_ptr<OuterStrategy> strategy = make_strategy();
      restore_from_checkpoint(*strategy);
      return strategy;
    }
    const std::unique_ptr<StateReader> state = setup_.checkpointing.written(context_.rank, t);
    restore_worker_parameters(*state, inner_);
    std::unique_ptr<OuterStrategy> strategy = make_strategy();
    restore_worker_state(*state, inner_, *strategy);
    return strategy;
  }

  /// Work that runs beside the next step must not wait, together with it, for other members, which
  /// may be waiting for that work.
  void give_what_is_being_sent(StepIndex t) {
    if (!trainer_->works_ahead()) return;
    if (!setup_.board.may_begin(t)) inner_.read_values({});
  }

  /// After a step that cannot be taken back any more: the copy to return to if a later step is
  /// taken back.
  void keep_copy() {
    if (setup_.site != nullptr && setup_.site->takes_back()) kept_.keep(inner_, *strategy_);
  }

  /// Returns to the last committed step, with all remaining members; later steps are trained again.
  /// A step has the same batches and the same learning rate each time.
  void go_back(const std::string& why) {
    const StepIndex committed = exchange().go_back();
    const StepIndex from = strategy_->steps();
    held_.clear();
    strategy_.reset();  // before there are two
    strategy_ = kept_.restore(inner_, [&] { return make_strategy(); });
    keep_copy();  // another loss may come before the next commit
    ISTHMUS_CHECK(strategy_->steps() >= committed, strategy_->steps().value(), committed.value());
    log_warning("worker {}: back from step {} to step {}: {}", context_.rank.value(),
                from.value() + 1, strategy_->steps().value(), why);
    setup_.site->gone_back(strategy_->steps());
    ahead_ = strategy_->steps();
  }

  [[nodiscard]] StepReport step_of_strategy() {
    const Stepping stepping(*trainer_, *strategy_);
    return strategy_->step();
  }

  void step(StepIndex t) {
    if (StateMemory* const files = StateMemory::current()) files->begin_step(t);
    StepReport report = step_of_strategy();
    const bool last = t.value() == setup_.plan.total_steps;
    if (last || workers_meet_after(t)) {
      const std::vector<RoundReport> rounds =
          last ? strategy_->finish() : outer::apply_late(*strategy_);
      report.rounds.insert(report.rounds.end(), rounds.begin(), rounds.end());
    }
    held_.emplace_back(t, StepPost{.report = std::move(report),
                                   .learning_rate = inner_.learning_rate(t),
                                   .now = context_.runtime.clock().now(),
                                   .sent = exchange().bytes(),
                                   .computed = timed_.computed()});
    settle(t);
  }

  /// Steps up to t, the last one taken, get their lines once nothing takes them back any more;
  /// where all meet they are committed first.
  void settle(StepIndex t) {
    if (held_.empty()) return;
    if (workers_meet_after(t)) strategy_->commit();
    if (exchange().uncommitted()) return;
    for (auto& [step, post] : std::exchange(held_, {})) {
      setup_.board.post_step(context_.rank, step, std::move(post));
    }
    setup_.board.posted_steps();
    keep_copy();
  }

  /// Whether all workers must have the same anchors after step t. The agreed steps are known by
  /// now, since no worker begins a step that may still become an agreed one.
  [[nodiscard]] bool workers_meet_after(StepIndex t) const {
    return setup_.plan.evaluates_after(t) || checkpoint_due(t) ||
           setup_.board.stop_after(t) != StopWish::kNone;
  }

  [[nodiscard]] bool checkpoint_due(StepIndex t) const {
    const std::int64_t every = setup_.plan.checkpoint_every;
    return (every > 0 && t.value() % every == 0) || setup_.board.checkpoint_after(t);
  }

  const WorkerSetup& setup_;
  WorkerContext& context_;
  std::unique_ptr<Trainer> trainer_;
  TimedInnerLoop timed_;
  outer::IdleInnerLoop inner_;
  // Where results are retained:
  std::optional<RetainingExchange> retaining_;
  std::optional<OuterHealing> healing_;
  // From no checkpoint that this session has written.
  std::optional<StepIndex> started_after_;
  std::unique_ptr<OuterStrategy> strategy_;
  bool may_train_ahead_ = false;
  Stride stride_;
  StepIndex ahead_{0};  // the last step that the trainer takes without a word
  // Where steps may be taken back:
  KeptState kept_;                                    // after the last committed one
  std::vector<std::pair<StepIndex, StepPost>> held_;  // of steps that are not committed
};

}  // namespace

void run_worker(const WorkerSetup& setup, WorkerContext& context) {
  setup.board.attach(context.runtime);
  Worker worker(setup, context);
  try {
    worker.run();
  } catch (const PeerError&) {
    if (setup.pending_delta) worker.leave_off(*setup.pending_delta);
    throw;
  }
  worker.finish();
}

}  // namespace isthmus::app
