// SPDX-License-Identifier: Apache-2.0
#include "app/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "app/build_info.h"
#include "app/checkpointing.h"
#include "app/event_log.h"
#include "app/resume.h"
#include "app/run_parts.h"
#include "app/run_summary.h"
#include "app/run_worlds.h"
#include "app/signals.h"
#include "app/site_board.h"
#include "app/site_session.h"
#include "app/worker.h"
#include "core/checkpoint_names.h"
#include "core/log.h"
#include "inner/data/batch_source.h"
#include "inner/hf/hf_weights.h"
#include "inner/model_layout.h"
#include "inner/schedule.h"
#include "kernels/isa.h"

namespace isthmus::app {
namespace {

/// The one worker of this process, where it is one site of several.
std::optional<Rank> own_rank(const Config& config, const TrainingRequest& request) {
  return request.site ? std::optional(site_of(config, *request.site)) : std::nullopt;
}

/// The run's data, not yet hashed, unless they are open already.
std::optional<OpenData> open_own(const Storage& storage, const Config& config,
                                 const TrainingRequest& request) {
  if (request.side_by_side && request.side_by_side->data != nullptr) {
    return std::nullopt;
  }
  return OpenData{Dataset::open(storage, config.data, config.file.parent_path()), {}};
}

/// One run, from checks to summary, in the order in which things can go wrong without a trace.
class Training {
 public:
  Training(const Config& config, const TrainingRequest& request, Session& session)
      : config_(config),
        request_(request),
        session_(session),
        layout_(model_shape(config.model, config.train.context)),
        plan_(make_training_plan(config, kernels::usable_cores(), own_rank(config, request))),
        own_data_(open_own(storage_, config, request)),
        data_(own_data_ ? own_data_->data : request.side_by_side->data->data),
        eval_tokens_(app::eval_tokens(config, data_)),
        digest_(config_digest(config)),
        out_(request.out.empty() ? config.run.out : request.out),
        resume_(request.site ? std::nullopt : find_resume(storage_, out_, request.resume)),
        goes_on_(request.resume == "auto" ||
                 (resume_ && !out_.empty() &&
                  is_same_place(resume_->folder().parent_path(), out_ / "ckpt"))) {
    if (!request.side_by_side) {
      kernels::use_isa(kernels::isa_named(config.train.kernels));
    }
    check();
    if (own_data_) {
      own_data_->fingerprint = data_.fingerprint();
    }
    fingerprint_ = own_data_ ? own_data_->fingerprint : request.side_by_side->data->fingerprint;
    check_resume();
  }

  TrainingOutcome run();

 private:
  /// Everything that can be wrong with the configuration, before anything is written.
  void check() const;
  void check_force() const;
  void check_resume() const;
  /// Meets the other sites, before anything is written.
  void join_sites();
  [[nodiscard]] Manifest manifest() const;
  [[nodiscard]] ExistingRun existing() const {
    return goes_on_         ? ExistingRun::kResume
           : request_.force ? ExistingRun::kForce
                            : ExistingRun::kRefuse;
  }
  [[nodiscard]] double byte_scale() const;
  void go(RunDirectory& directory, const Manifest& manifest, MetricsLog& log, RunTotals& totals,
          TrainingOutcome& outcome);

  SystemStorage storage_;
  const Config& config_;
  const TrainingRequest& request_;
  Session& session_;
  ModelLayout layout_;
  TrainingPlan plan_;
  std::optional<OpenData> own_data_;  // nothing where it is shared with other runs
  const Dataset& data_;
  std::int64_t eval_tokens_;
  std::string digest_;
  std::filesystem::path out_;  // empty: a new folder under runs/
  std::optional<Checkpoint> resume_;
  bool goes_on_;  // the run in `out_` goes on; otherwise a new one begins
  std::vector<DataFile> fingerprint_;
  std::optional<SiteSession> site_;
  std::string run_id_;  // agreed with the other sites; else empty
};

void Training::check() const {
  data_.check_vocabulary(config_.model.vocab);
  for (int m = 0; m < plan_.workers; ++m) {
    const BatchSource source(data_, batch_plan(config_, plan_), m);
  }
  if (eval_tokens_ >= 0) {
    const ValidationSource windows(data_, config_.train.context, eval_tokens_, config_.model.vocab,
                                   parse_validation_part(config_.eval.part));
  }
  const std::vector<Parameter> parameters = parameters_without_values(layout_);
  (void)prediction_input(config_.method, config_.outer, parameters, plan_.workers,
                         plan_.total_steps);
  (void)LearningRateSchedule(config_.inner, plan_.total_steps);
  if (!config_.model.init.empty()) {
    check_hf_weights(storage_, config_.locate(config_.model.init), parameters);
  }
  if (request_.simulated || request_.emulated) {
    check_links(config_);
  }
  check_force();
}

void Training::check_force() const {
  if (!request_.force || goes_on_ || out_.empty()) {
    return;
  }
  if (!config_.model.init.empty() &&
      lies_within(config_.locate(config_.model.init), out_ / "ckpt")) {
    throw ConfigError(
        fmt::format("--force would remove model.init = \"{}\" with the run in '{}': choose another "
                    "--out, or export the model first",
                    config_.model.init.string(), out_.string()));
  }
}

void Training::check_resume() const {
  if (resume_) {
    check_same_configuration(storage_, *resume_, config_, digest_);
    check_same_data(*resume_, fingerprint_);
    if (resume_->info().only_worker && !request_.site && plan_.workers > 1) {
      throw ConfigError(fmt::format(
          "checkpoint {} holds one site's state alone: go on at all sites with train --site NAME "
          "--resume auto, or start a new run from its model with model.init",
          resume_->folder().string()));
    }
  }
}

void Training::join_sites() {
  SiteFacts facts{.run_id = random_id(),
                  .layout = layout_digest(layout_),
                  .common = common_values(config_),
                  .resumes = request_.resume == "auto",
                  .held = {}};
  facts.common.emplace_back("layout of the model", facts.layout.hex());
  append_data(fingerprint_, facts.common);
  if (facts.resumes) {
    facts.held =
        held_checkpoints(storage_, out_, config_, digest_, site_of(config_, *request_.site));
  }
  site_.emplace(config_, *request_.site, facts);
  const SiteStart start = site_->gather([&](const std::string& what) {
    session_.err.write(fmt::format("isthmus: waiting for the other sites: {}\n", what));
  });
  run_id_ = start.run_id;
  if (start.resume_after) {
    resume_ = Checkpoint::open(storage_, out_ / "ckpt" / step_name(*start.resume_after));
    check_resume();
  }
}

double Training::byte_scale() const {
  return request_.simulated ? surrogate_byte_scale(config_, layout_) : 1.0;
}

Manifest Training::manifest() const {
  Manifest manifest = make_manifest(config_, request_.command, session_.argv);
  manifest.config_hash = digest_;
  manifest.simulated = request_.simulated;
  manifest.surrogate = request_.simulated ? config_.surrogate : std::nullopt;
  manifest.parameters = layout_.elements();
  for (const DataFile& file : fingerprint_) {
    manifest.data.push_back({file.path, file.bytes, file.sha256});
  }
  if (resume_) {
    if (goes_on_) {
      manifest.run_id = resume_->info().run_id;  // the same run goes on
    } else {
      manifest.parent = resume_->info().run_id;
    }
  } else if (!run_id_.empty()) {
    manifest.run_id = run_id_;
  }
  return manifest;
}

TrainingOutcome Training::run() {
  std::optional<SignalScope> signals;
  std::optional<Progress> progress;
  if (!request_.side_by_side) {
    signals.emplace();
    progress.emplace(session_.err, session_.progress);
  }
  if (request_.site) {
    check_folder({.out = out_, .existing = existing()});
    join_sites();
  }
  Manifest manifest = this->manifest();
  RunDirectory directory(
      storage_,
      {.out = out_, .name = config_.run.name, .run_id = manifest.run_id, .existing = existing()});
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
  const std::int64_t resumed_step = resume_ ? resume_->info().step : 0;
  if (resume_ && goes_on_) {
    // First of all: lines too many are dropped by the next resume, lines too few are lost.
    CheckpointStore store(storage_, directory.checkpoints(), config_.ckpt.keep);
    store.recover();
    store.remove_after(resumed_step);
  }
  directory.truncate_after("metrics.jsonl", resumed_step);
  directory.truncate_after("events.jsonl", resumed_step);
  JsonLinesFile metrics = directory.open_lines("metrics.jsonl");
  MetricsLog log({.config = config_,
                  .total_steps = plan_.total_steps,
                  .simulated = request_.simulated,
                  .byte_scale = byte_scale(),
                  .lane = request_.lane,
                  .finished_lanes = request_.finished_lanes,
                  .on_step = request_.side_by_side ? request_.side_by_side->on_step : nullptr,
                  .tensorboard = tensorboard_sink(storage_, config_, directory.path(),
                                                  request_.simulated, resumed_step)},
                 metrics, progress ? &*progress : nullptr, totals);
  log.begin(manifest);
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
  try {
    go(directory, manifest, log, totals, outcome);
  } catch (const std::exception& error) {
    outcome.status = "failed";
    cause = error.what();
    failure = std::current_exception();
  }
  progress.reset();
  log.end(outcome.status, cause);
  manifest.status = outcome.status;
  manifest.ended = utc_now();
  directory.write_manifest(manifest);
  if (failure) {
    std::rethrow_exception(failure);
  }
  return outcome;
}

void Training::go(RunDirectory& directory, const Manifest& manifest, MetricsLog& log,
                  RunTotals& totals, TrainingOutcome& outcome) {
  const std::unique_ptr<SiteBoard> site_board =
      site_ ? make_site_board(*site_, config_, plan_.total_steps, totals.steps, log) : nullptr;
  const SiteConnection connection(site_ ? &*site_ : nullptr, site_board.get());
  std::function<void(StepIndex, const Digest128&)> tell_outer;
  std::function<void(StepIndex)> await_lines;
  if (site_board) {
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
       .await_lines = await_lines,
       .on_written = tell_outer,
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
                       .layout = layout_,
                       .data = data_,
                       .simulated = request_.simulated,
                       .byte_scale = byte_scale(),
                       .slots = request_.side_by_side ? request_.side_by_side->slots : 0,
                       .emulated = request_.emulated,
                       .site = site_ ? &*site_ : nullptr,
                       .events = events ? &*events : nullptr};
  if (request_.simulated && totals.measured_step == Duration{0}) {
    totals.measured_step = measure_step(world);
  }
  const WorkerSetup setup{.storage = storage_,
                          .config = config_,
                          .plan = plan_,
                          .data = data_,
                          .eval_tokens = eval_tokens_,
                          .board = board,
                          .checkpointing = checkpointing,
                          .anchor_mean = anchor_mean,
                          .events = world.events,
                          .patience = round_patience(config_, request_.simulated),
                          .step_flops = step_flops(world),
                          .measured_step = totals.measured_step,
                          .on_start = tell_outer};
  WorldResult result;
  try {
    result = run_workers(world, setup);
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
    outcome.prediction = predict_run(world, {totals.measured_step});
  }
  if (has_real_links(world) && board.stopped() == StopWish::kNone && !outcome.resumed) {
    outcome.prediction = predict_run(world, totals.mean_steps());
  }
  outcome.totals = totals;
  outcome.evals = log.evals();
  write_summary(directory, config_, outcome, result);
}

}  // namespace

TrainingOutcome run_training(const Config& config, const TrainingRequest& request,
                             Session& session) {
  return Training(config, request, session).run();
}

void check_training(const Config& config, const TrainingRequest& request, Session& session) {
  const Training checked(config, request, session);
}

}  // namespace isthmus::app
