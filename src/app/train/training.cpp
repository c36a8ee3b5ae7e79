// SPDX-License-Identifier: Apache-2.0
#include "app/train/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "app/train/language_model_trainer.h"
#include "app/train/run_parts.h"
#include "app/train/run_prediction.h"
#include "app/train/run_summary.h"
#include "app/train/training_run.h"
#include "core/base/log.h"
#include "inner/hf/hf_weights.h"
#include "record/event_log.h"
#include "session/run/checkpointing.h"
#include "session/run/lone_training.h"
#include "session/run/run_worlds.h"
#include "session/run/saved_pieces.h"
#include "session/run/signals.h"
#include "session/run/worker.h"
#include "session/site/site_connection.h"

namespace isthmus::app {

TrainingOutcome Training::run() {
  std::optional<SignalScope> signals;
  std::optional<Progress> progress;
  if (!request_.side_by_side) {
    signals.emplace();
    progress.emplace(session_.err, session_.progress);
  }
  let_watch();
  if (request_.site) {
    check_folder({.out = out_, .existing = existing()});
    join_sites();
  }
  Manifest manifest = this->manifest();
  RunDirectory directory(
      storage_,
      {.out = out_, .name = config_.run.name, .run_id = manifest.run_id, .existing = existing()});
  if (!joins_) storage_.remove_all(directory.path() / SavedPieces::kFile);  // of a join that ended
  storage_.remove_all(directory.path() / kResultsFile);  // of a process that was killed
  directory.write_config(config_);
  directory.write_manifest(manifest);

  RunTotals totals;
  totals.payload_bytes.resize(static_cast<std::size_t>(plan_.workers));
  totals.wire_bytes.resize(static_cast<std::size_t>(plan_.workers));
  totals.compute_s.resize(static_cast<std::size_t>(plan_.workers));
  if (resume_) {
    const std::unique_ptr<StateReader> shared = resume_->shared();
    PrefixedStateReader reader(*shared, "totals/");
    totals.load(reader);
  }
  std::int64_t resumed_step = resume_ ? resume_->info().step : 0;
  if (joins_) {  // what was sent before it came is not known here
    resumed_step = joins_->step.value();
    totals.clock_s = joins_->clock_s;
  }
  totals.steps = resumed_step;  // where a site joins it has no lines of steps before
  if ((resume_ || joins_) && goes_on_) {
    // First of all: lines too many are dropped by the next resume, lines too few are lost.
    CheckpointStore store(storage_, directory.checkpoints(), config_.ckpt.keep);
    store.recover();
    store.remove_after(resumed_step);
  }
  if (given_up_) {
    const std::filesystem::path aside = directory.set_aside();
    log_warning("the run begins anew: not all sites have its first checkpoint, of step {}{}",
                *given_up_,
                aside.empty() ? "" : fmt::format("; what was here is in '{}'", aside.string()));
  }
  directory.truncate_after("metrics.jsonl", resumed_step);
  directory.truncate_after("events.jsonl", resumed_step);
  JsonLinesFile metrics = directory.open_lines("metrics.jsonl");
  const WorkerId own = own_rank(config_, request_).value_or(WorkerId(0));
  MetricsLog log({.config = config_,
                  .total_steps = plan_.total_steps,
                  .simulated = request_.simulated,
                  .byte_scale = byte_scale(),
                  .lane = request_.lane,
                  .finished_lanes = request_.finished_lanes,
                  .on_step = request_.side_by_side ? request_.side_by_side->on_step : nullptr,
                  .tensorboard = tensorboard_sink(storage_, config_, directory.path(),
                                                  request_.simulated, resumed_step),
                  .status = status(),
                  .self = static_cast<std::size_t>(own.value()),
                  .keeps_evals = request_.side_by_side.has_value()},
                 metrics, progress ? &*progress : nullptr, totals);
  if (watch_) {
    watch_->board().begin(manifest, totals, directory.path().string());
    watch_->announce(directory.path(), manifest.run_id);
  }
  log.begin(manifest);
  if (request_.mesh != nullptr) {
    request_.mesh->on_finding = [this, &log](const RankFinding& finding) {
      log.rank(StepIndex(request_.mesh->step), finding);
    };
  }
  tell_device();
  if (const std::string warning = codec_warning(config_); !warning.empty()) {
    log_warning("{}", warning);
  }

  TrainingOutcome outcome{.status = "ok",
                          .directory = directory.path(),
                          .parameters = layout_.elements(),
                          .simulated = request_.simulated,
                          .resumed = resumed_step > 0};
  std::string cause;
  std::exception_ptr failure;
  bool by_peers = false;
  try {
    go(directory, manifest, log, totals, outcome);
  } catch (const std::exception& error) {
    outcome.status = "failed";
    cause = error.what();
    failure = std::current_exception();
    by_peers = dynamic_cast<const PeerError*>(&error) != nullptr;
  }
  progress.reset();
  log.end(outcome.status, cause, site_ ? site_->late() : std::nullopt);
  manifest.status = outcome.status;
  manifest.ended = utc_now();
  directory.write_manifest(manifest);
  if (failure) {
    if (by_peers && site_ && site_->cut_off() && request_.mesh == nullptr) {
      if (request_.in_hand != nullptr)
        request_.in_hand->late = site_->late().value_or(LateStatus());
      throw CutOffError(cause, directory.path());
    }
    std::rethrow_exception(failure);
  }
  return outcome;
}

void Training::go(RunDirectory& directory, const Manifest& manifest, MetricsLog& log,
                  RunTotals& totals, TrainingOutcome& outcome) {
  const std::unique_ptr<SiteBoard> site_board =
      site_ ? make_site_board(*site_, config_, plan_.total_steps, totals.steps, log, status())
            : nullptr;
  const SiteConnection connection(site_ ? &*site_ : nullptr, site_board.get());
  if (site_) {
    site_->take_newcomers(
        manifest.run_id, [&board = *site_board](const WishNote& note) { board.wish_join(note); },
        join_window(config_), plan_.total_steps);
  }
  std::function<void(StepIndex, const Digest128&)> tell_outer;
  std::function<void(StepIndex)> await_lines;
  std::function<bool(StepIndex)> of_all_sites;
  if (site_board) {
    of_all_sites = [&](StepIndex t) { return !std::ranges::count(site_board->present(t), false); };
    await_lines = [&](StepIndex t) { site_board->await_lines(t); };
    tell_outer = [&](StepIndex t, const Digest128& digest) { site_board->tell_outer(t, digest); };
  }
  RunBoard own_board(plan_.workers, plan_.total_steps, log);
  Board& board = site_board ? static_cast<Board&>(*site_board) : own_board;
  const std::filesystem::path init_folder =
      config_.model.init.empty() ? std::filesystem::path() : config_.locate(config_.model.init);
  Checkpointing checkpointing(
      {.storage = storage_,
       .folder = directory.checkpoints(),
       .config = config_,
       .run_id = manifest.run_id,
       .config_hash = digest_,
       .data = fingerprint_,
       .writes = !request_.side_by_side || request_.side_by_side->checkpoint,
       .only = own_rank(config_, request_),
       .of_all_sites = of_all_sites,
       .await_lines = await_lines,
       .files = hf_companions(storage_, layout_.shape(), init_folder, data_.format() == "text")},
      std::move(resume_), totals, log);
  const bool keeps_events = !request_.side_by_side || request_.side_by_side->events;
  std::optional<EventLog> events;
  if (keeps_events) {
    events.emplace(directory.open_lines("events.jsonl"),
                   Duration(static_cast<Duration::rep>(totals.clock_s * 1e9)) -
                       (site_board ? site_board->start().time_since_epoch() : Duration{0}));
    if (site_) site_->record_into(&*events);
  }
  AnchorMean anchor_mean(plan_.workers);
  const RunWorld world{.config = config_,
                       .plan = plan_,
                       .simulated = request_.simulated,
                       .byte_scale = byte_scale(),
                       .slots = request_.side_by_side ? request_.side_by_side->slots : 0,
                       .begun = Duration(static_cast<Duration::rep>(totals.clock_s * 1e9)),
                       .emulated = request_.emulated,
                       .site = site_ ? &*site_ : nullptr,
                       .events = events ? &*events : nullptr,
                       .status = status()};
  const ModelRun run{.world = world, .plan = plan_, .layout = layout_, .data = data_};
  if (request_.simulated && totals.measured_step == Duration{0}) {
    totals.measured_step = measure_step(run);
  }
  std::optional<RetainedResults> retained;
  if (site_ && retains_results(config_)) {
    retained.emplace(storage_, directory.path() / kResultsFile,
                     RetainedResults::Room{.most_bytes = retained_bytes(config_),
                                           .free_bytes = [path = directory.path()] {
                                             return std::filesystem::space(path).available;
                                           }});
  }
  const LanguageModelTrainer::Setup trained{.config = config_,
                                            .plan = plan_,
                                            .storage = storage_,
                                            .data = data_,
                                            .eval_tokens = eval_tokens_,
                                            .events = world.events};
  const MakeTrainer make = [&](const WorkerContext& context) -> std::unique_ptr<Trainer> {
    return std::make_unique<LanguageModelTrainer>(trained, context.rank, context.runtime);
  };
  const WorkerSetup setup{
      .config = config_,
      .plan = plan_,
      .make = make,
      .board = board,
      .checkpointing = checkpointing,
      .anchor_mean = anchor_mean,
      .events = world.events,
      .patience = round_patience(config_, request_.simulated),
      .step_flops = step_flops(run),
      .begun = world.begun,
      .measured_step = totals.measured_step,
      .tell_outer = tell_outer,
      .retained = retained ? &*retained : nullptr,
      .site = site_ ? &*site_ : nullptr,
      .in_hand = site_ && site_->elastic() && request_.mesh == nullptr ? request_.in_hand : nullptr,
      .on_own_work = [&](StepIndex t, const BroughtBack& work) {
        if (site_board) site_board->came_back(t, work);
      }};
  WorldResult result;
  try {
    result = run_workers(world, [&](WorkerContext& context) { run_worker(setup, context); });
  } catch (const PeerError&) {
    if (site_board) site_board->explain();
    throw;
  }
  if (site_) {
    site_board->flush();
    site_->leave();
    site_board->check();
  }
  switch (board.stopped()) {
    case StopWish::kNone:
      break;
    case StopWish::kInterrupt:
      outcome.status = "interrupted";
      outcome.exit_code = ExitCode::kInterrupted;
      break;
    case StopWish::kRequeue:
      outcome.status = "checkpointed";
      outcome.exit_code = ExitCode::kCheckpointedRequeue;
      break;
  }
  // The closed form speaks of the whole run.
  if (request_.simulated && board.stopped() == StopWish::kNone) {
    outcome.prediction = predict_run(run, {totals.measured_step});
    if (!config_.faults.empty()) {
      outcome.faults = cost_of_faults(config_, *outcome.prediction, totals.measured_step,
                                      totals.clock_s, outcome.resumed);
    }
  }
  if (has_real_links(world) && board.stopped() == StopWish::kNone && !outcome.resumed) {
    outcome.prediction = predict_run(run, totals.mean_steps());
  }
  // Which rounds faults lengthen is not known; nobody looks at single rounds of runs side by side.
  if (outcome.prediction && !outcome.faults && !request_.side_by_side) {
    const std::vector<Duration> steps =
        request_.simulated ? std::vector{totals.measured_step} : totals.mean_steps();
    outcome.rounds = compare_rounds(predict_run_rounds(run, steps), result.rounds);
    const WorkerId own = own_rank(config_, request_).value_or(WorkerId(0));
    outcome.rounds_at = config_.sites.at(static_cast<std::size_t>(own.value())).name;
  }
  outcome.totals = totals;
  outcome.evals = log.evals();
  if (site_) outcome.late = site_->late();
  write_summary(directory, config_, outcome, result);
}

TrainingOutcome run_training(const Config& config, const TrainingRequest& request,
                             Session& session) {
  return Training(config, request, session).run();
}

void check_training(const Config& config, const TrainingRequest& request, Session& session) {
  const Training checked(config, request, session);
}

}  // namespace isthmus::app
