// SPDX-License-Identifier: Apache-2.0
#include "app/worker.h"

#include <algorithm>
#include <utility>

#include "app/offload.h"
#include "app/run_parts.h"
#include "app/site_session.h"
#include "app/worker_state.h"
#include "core/check.h"
#include "core/device_request.h"
#include "core/log.h"
#include "core/units.h"
#include "isthmus/errors.h"
#include "kernels/cuda/resident_values.h"
#include "outer/idle_inner_loop.h"
#include "outer/late_rounds.h"
#include "outer/outer_placement.h"
#include "sim/fault_schedule.h"

namespace isthmus::app {
namespace {

/// Evaluation windows taken together. A constant, so that the sums do not depend on the workers.
constexpr std::int64_t kEvalBatch = 8;

class Worker {
 public:
  Worker(const WorkerSetup& setup, WorkerContext& context)
      : setup_(setup),
        context_(context),
        source_(setup.data, batch_plan(setup.config, setup.plan), context.rank.value()),
        batches_(std::make_unique<StepBatches>(
            StepBatches{[this](StepIndex t) { return source_.at(t.value() - 1); }})),
        model_(
            make_inner_loop(setup.plan.device, context.rank,
                            language_model_options(setup.config, setup.plan, context.rank),
                            [batches = batches_.get()](StepIndex t) { return batches->from(t); })),
        timed_(*model_, context.runtime, context.rank,
               make_step_clock(setup.config, context.rank, setup.step_flops, setup.measured_step),
               setup.events,
               setup.config.sites[static_cast<std::size_t>(context.rank.value())].pace),
        inner_(timed_),
        newcomer_(setup.site != nullptr ? setup.site->newcomer() : nullptr) {
    timed_.set_profile(fault_pace(
        setup.config.faults,
        setup.config.sites[static_cast<std::size_t>(context.rank.value())].name, setup.begun));
    if (setup.site != nullptr && setup.config.net.deadline) {
      timed_.set_skips([site = setup.site](StepIndex t) { return site->skips(t); });
    }
    load_initial_weights(setup.storage, setup.config, inner_);
    const std::unique_ptr<StateReader> taken_over = newcomer_ ? newcomer_->take_state() : nullptr;
    if (taken_over) {
      restore_worker_parameters(*taken_over, inner_);
    } else {
      setup.checkpointing.restore_parameters(context.rank, inner_);
    }
    strategy_ = make_strategy();
    if (taken_over) {
      restore_worker_state(*taken_over, inner_, *strategy_);
      catch_up();
    } else {
      setup.checkpointing.restore_state(context.rank, inner_, *strategy_);
      if (setup.in_hand && setup.in_hand->work) {
        log_info("all go on from a checkpoint: what this site has trained on since comes again");
        setup.in_hand->work.reset();
      }
    }
    keep_copy();
    if (setup.on_start && !newcomer_ && strategy_->shared_anchors()) {
      setup.on_start(strategy_->steps(), outer_digest(*strategy_, inner_.parameters().size()));
    }
  }

  /// Hands over what nobody has of its work, and where it can be trained on with, the model too.
  /// REQUIRES: `run` has ended with PeerError; the worker does nothing more.
  void leave_off(InHand& hand) {
    hand.training.reset();
    hand.work = own_work();  // in place of what was before
    const auto* const carries = dynamic_cast<const outer::CarriesWork*>(strategy_.get());
    const bool something = carries != nullptr && carries->carries() && hand.work;
    if (something && setup_.config.net.max_solo_rounds > 0) {
      hand.training =
          std::make_unique<LoneTraining>(LoneTraining::Parts{.config = setup_.config,
                                                             .plan = setup_.plan,
                                                             .self = context_.rank,
                                                             .batches = std::move(batches_),
                                                             .model = std::move(model_),
                                                             .work = *std::move(hand.work),
                                                             .fragments = carries->fragments()});
      hand.work.reset();
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
      if (!begin(t)) return;
      try {
        settle(strategy_->steps());  // that all commit after it may have been heard just now
        step(t);
      } catch (const TakenBackError& error) {
        go_back(error.what());
        continue;
      }
      if (setup_.site != nullptr) setup_.site->after_step(t, inner_, *strategy_);
      if (setup_.plan.evaluates_after(t)) {
        evaluate(t);
      }
      const StopWish wish = setup_.board.stop_after(t);
      const bool last = t.value() == setup_.plan.total_steps;
      if (last || wish != StopWish::kNone || checkpoint_due(t)) {
        setup_.checkpointing.lay_down(context_.rank, t, inner_, *strategy_);
      }
      if (wish != StopWish::kNone) {
        return;
      }
    }
  }

 private:
  [[nodiscard]] std::optional<outer::OwnWork> own_work() const {
    const auto* const carries = dynamic_cast<const outer::CarriesWork*>(strategy_.get());
    if (carries == nullptr) return std::nullopt;
    if (StateMemory::current() != nullptr) {  // it would be as large as the model, and in memory
      log_info("with train.offload no work of an open window is taken along");
      return std::nullopt;
    }
    try {
      return carries->own_work();
    } catch (const std::exception& error) {  // for want of memory, or of the model's own ranks
      log_warning("what this site has trained on and nobody has is lost: {}", error.what());
      return std::nullopt;
    }
  }

  /// With its state on the device that has the weights, or on the site's ranks, where
  /// outer.placement says so; virtual time has neither, and threads share one memory.
  [[nodiscard]] std::unique_ptr<OuterStrategy> make_strategy() {
    OuterOptions options = setup_.config.outer;
    options.patience = setup_.patience;
    options.spsa.run_key = run_key(setup_.config.run.seed, Stream::kSpsa);
    options.spsa.threads = setup_.plan.threads_per_worker;
    auto* const values = dynamic_cast<cuda::ResidentValues*>(model_.get());
    if (outer_is_on_device(setup_.config) && !context_.runtime.simulated()) {
      ISTHMUS_CHECK(values != nullptr, setup_.config.outer_placement);
      return outer::make_outer_strategy_on_device(setup_.config.method, options, inner_,
                                                  context_.exchange, *values);
    }
    if (outer_is_on_ranks(setup_.config) && setup_.plan.processes != nullptr) {
      auto* const loop = dynamic_cast<LanguageModelLoop*>(model_.get());
      ISTHMUS_CHECK(loop != nullptr, setup_.config.outer_placement);
      return outer::make_outer_strategy_on_ranks(
          setup_.config.method, options, inner_, context_.exchange,
          [loop](const RankService& part) { loop->call_ranks(part); });
    }
    return make_outer_strategy(setup_.config.method, options, inner_, context_.exchange);
  }

  /// Takes the steps that the run takes meanwhile, on another worker's results, until all have
  /// agreed on one after which this worker trains.
  void catch_up() {
    strategy_->forget_own_work();  // the donor's, until then
    inner_.set_idle(true);
    while (newcomer_->may_replay(StepIndex(strategy_->steps().value() + 1), setup_.patience)) {
      static_cast<void>(strategy_->step());
    }
    static_cast<void>(outer::apply_late(*strategy_));  // as all others have, after this step
    inner_.set_idle(false);
    strategy_->forget_own_work();
    take_up_own_work();
    setup_.checkpointing.lay_down(context_.rank, strategy_->steps(), inner_, *strategy_);
    if (setup_.in_hand) setup_.in_hand->work.reset();  // not before: cut off again, it comes again
  }

  void take_up_own_work() {
    if (!setup_.in_hand || !setup_.in_hand->work) return;
    const outer::OwnWork& work = *setup_.in_hand->work;
    auto* const carries = dynamic_cast<outer::CarriesWork*>(strategy_.get());
    // Where the others have gone back behind it, it is to be trained again.
    const bool ahead = strategy_->steps() >= work.step;
    const outer::CarriesWork::Kept kept =
        carries != nullptr && ahead
            ? carries->carry(work)
            : outer::CarriesWork::Kept{.tokens = 0, .lost_tokens = work.all_tokens()};
    log_info(
        "of what this site had trained on by step {} and nobody had, {} tokens come along with its "
        "next contribution, and {} are lost",
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

  /// RETURNS: false when the run ends here, where all have stood: too few sites are there. Who
  /// comes back is given the state of here.
  [[nodiscard]] bool begin(StepIndex t) {
    const auto may = [&] {
      const bool due = (context_.rank == Rank(0) || setup_.site != nullptr) &&
                       setup_.checkpointing.due_by_time();
      return setup_.board.begin_step(context_.rank, t, due);
    };
    while (!may()) {
      if (setup_.board.stop_after(strategy_->steps()) != StopWish::kNone) return false;
      setup_.site->after_step(strategy_->steps(), inner_, *strategy_, true);
    }
    return true;
  }

  /// After a step that nothing takes back any more: what to go back to, if a later one is.
  void keep_copy() {
    if (setup_.site != nullptr && setup_.site->takes_back()) kept_.keep(inner_, *strategy_);
  }

  /// To the last committed step, with all who are left; what was trained since is trained again.
  /// The batches of a step are the same each time, and so is its learning rate.
  void go_back(const std::string& why) {
    const StepIndex committed = context_.exchange.go_back();
    const StepIndex from = strategy_->steps();
    held_.clear();
    strategy_.reset();  // before there are two
    strategy_ = kept_.restore(inner_, [&] { return make_strategy(); });
    ISTHMUS_CHECK(strategy_->steps() >= committed, strategy_->steps().value(), committed.value());
    log_warning("worker {}: back from step {} to step {}: {}", context_.rank.value(),
                from.value() + 1, strategy_->steps().value(), why);
    setup_.site->gone_back(strategy_->steps());
  }

  void step(StepIndex t) {
    if (StateMemory* const files = StateMemory::current()) files->begin_step(t);
    StepReport report = strategy_->step();
    const bool last = t.value() == setup_.plan.total_steps;
    if (last || workers_meet_after(t)) {
      const std::vector<RoundReport> rounds =
          last ? strategy_->finish() : outer::apply_late(*strategy_);
      report.rounds.insert(report.rounds.end(), rounds.begin(), rounds.end());
    }
    held_.emplace_back(t, StepPost{.report = std::move(report),
                                   .learning_rate = inner_.learning_rate(t),
                                   .now = context_.runtime.clock().now(),
                                   .sent = context_.exchange.bytes(),
                                   .computed = timed_.computed()});
    settle(t);
  }

  /// Steps up to t, the last one taken, get their lines once nothing takes them back any more;
  /// where all meet they are committed first.
  void settle(StepIndex t) {
    if (held_.empty()) return;
    if (workers_meet_after(t)) strategy_->commit();
    if (context_.exchange.uncommitted()) return;
    for (auto& [step, post] : std::exchange(held_, {})) {
      setup_.board.post_step(context_.rank, step, std::move(post));
    }
    setup_.board.posted_steps();
    keep_copy();
  }

  // Outer parameters that are the same on all workers are evaluated by all that are there, each
  // taking every M-th batch of windows; the mean of unlike ones by the worker who has it.
  void evaluate(StepIndex t) {
    if (setup_.eval_tokens < 0) {
      return;
    }
    ValidationSource windows(setup_.data, setup_.config.train.context, setup_.eval_tokens,
                             setup_.config.model.vocab,
                             parse_validation_part(setup_.config.eval.part));
    EvalShare share{
        .parts = {}, .batches = (windows.windows() + kEvalBatch - 1) / kEvalBatch, .now = {}};
    if (strategy_->shared_anchors()) {
      share.parts = evaluate(windows, *strategy_, share_of_batches(t, share.batches));
    } else if (const auto mean = setup_.anchor_mean.lay_down(context_.rank, t, *strategy_,
                                                             inner_.parameters().size())) {
      share.parts = evaluate(windows, *mean, every(share.batches, 0, 1));
    }
    share.now = context_.runtime.clock().now();
    setup_.board.post_eval(context_.rank, t, share);
    if (t.value() < setup_.plan.total_steps) {
      return;
    }
    if (const std::vector<std::int64_t> missing = setup_.board.await_eval(t); !missing.empty()) {
      setup_.board.complete_eval(t, evaluate(windows, *strategy_, missing));
    }
  }

  /// By place among the workers present.
  [[nodiscard]] std::vector<std::int64_t> share_of_batches(StepIndex t,
                                                           std::int64_t batches) const {
    const std::vector<bool> present = setup_.board.present(t);
    const auto self = present.begin() + context_.rank.value();
    return *self ? every(batches, std::count(present.begin(), self, true),
                         std::count(present.begin(), present.end(), true))
                 : std::vector<std::int64_t>();
  }

  [[nodiscard]] static std::vector<std::int64_t> every(std::int64_t batches, std::int64_t first,
                                                       std::int64_t stride) {
    std::vector<std::int64_t> share;
    for (std::int64_t k = first; k < batches; k += stride) share.push_back(k);
    return share;
  }

  [[nodiscard]] std::vector<EvalPart> evaluate(ValidationSource& windows,
                                               const ParameterSource& source,
                                               const std::vector<std::int64_t>& batches) {
    std::vector<EvalPart> parts;
    for (const std::int64_t k : batches) {
      const std::int64_t begin = k * kEvalBatch;
      const TokenBatch batch = windows.at(begin, std::min(kEvalBatch, windows.windows() - begin));
      const auto tokens = static_cast<std::int64_t>(batch.targets.size());
      const double mean = inner_.loss(batch, source);
      parts.push_back(
          {.batch = k, .loss_sum = mean * static_cast<double>(tokens), .tokens = tokens});
    }
    return parts;
  }

  /// Whether all must have the same anchors after step t. What is agreed on is known by now, since
  /// nobody begins a step that may still become the agreed one.
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
  BatchSource source_;
  std::unique_ptr<StepBatches> batches_;
  std::unique_ptr<InnerLoop> model_;
  TimedInnerLoop timed_;
  outer::IdleInnerLoop inner_;
  Newcomer* newcomer_;
  std::unique_ptr<OuterStrategy> strategy_;
  // Where steps may be taken back:
  KeptState kept_;                                    // after the last committed one
  std::vector<std::pair<StepIndex, StepPost>> held_;  // of steps that are not committed
};

}  // namespace

void run_worker(const WorkerSetup& setup, WorkerContext& context) {
  setup.board.attach(context.runtime);
  // Virtual time knows nothing of a disk.
  const bool real = !context.runtime.simulated();
  const std::unique_ptr<StateMemory> files =
      make_state_memory(setup.config, context.rank, real ? setup.events : nullptr,
                        real ? &context.runtime.clock() : nullptr);
  const StateMemoryScope scope(files.get());
  Worker worker(setup, context);
  try {
    worker.run();
  } catch (const PeerError&) {
    if (setup.in_hand) worker.leave_off(*setup.in_hand);
    throw;
  }
  if (files) {
    const StateTraffic traffic = files->traffic();
    log_info("worker {}: {} read from the files of train.offload, {} written, {} waited for them",
             context.rank.value(), human_bytes(static_cast<double>(traffic.read_bytes)),
             human_bytes(static_cast<double>(traffic.written_bytes)), human_time(traffic.wait_s));
  }
}

}  // namespace isthmus::app
