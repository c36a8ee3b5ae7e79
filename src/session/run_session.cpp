// SPDX-License-Identifier: Apache-2.0
#include "session/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "core/base/log.h"
#include "core/base/read_only_error.h"
#include "core/state/checkpoint_names.h"
#include "record/event_log.h"
#include "record/tensorboard_sink.h"
#include "record/wall_clock.h"
#include "session/run/checkpointing.h"
#include "session/run/local_step_coordinator.h"
#include "session/run/owner_shares.h"
#include "session/run/partial_state_file.h"
#include "session/run/run_settings.h"
#include "session/run/trainer_facts.h"
#include "session/run/wishes.h"
#include "session/run/worker.h"
#include "session/site/site_connection.h"
#include "session/site/site_links.h"

namespace isthmus::app {
namespace {

Duration clock_of(const RunTotals& totals) {
  return Duration(static_cast<Duration::rep>(totals.clock_s * 1e9));
}

/// A scheduler's wish leaves some time, a person's none.
DiskWish disk_wish(const Wishes& wishes) {
  switch (wishes.stop()) {
    case StopWish::kInterrupt:
      return DiskWish::kGiveUp;
    case StopWish::kRequeue:
      return DiskWish::kHurry;
    case StopWish::kNone:
      break;
  }
  return DiskWish::kTryOn;
}

RunTotals empty_totals(int workers) {
  const auto count = static_cast<std::size_t>(workers);
  RunTotals totals;
  totals.payload_bytes.resize(count);
  totals.wire_bytes.resize(count);
  totals.compute_s.resize(count);
  return totals;
}

}  // namespace

std::optional<WorkerId> own_worker(const Config& config, const std::optional<SiteArguments>& site) {
  return site ? std::optional(site_of(config, *site)) : std::nullopt;
}

RunSession::RunSession(SessionOptions options)
    : options_(std::move(options)),
      config_(options_.config),
      digest_(config_digest(config_)),
      patience_(runtime_,
                [this] { return failed_ ? DiskWish::kGiveUp : disk_wish(options_.wishes); }),
      lock_(options_.lock != nullptr ? *options_.lock : own_lock_),
      resume_(checkpoint_to_resume()),
      continues_(options_.resume == "auto" ||
                 (resume_ && !options_.out.empty() &&
                  is_same_place(resume_->folder().parent_path(), options_.out / "ckpt"))) {}

std::optional<std::vector<DataFile>> RunSession::begun_with() const {
  if (resume_) return data_of(*resume_);
  if (!options_.site) return std::nullopt;
  return data_begun_with(storage_, options_.out, options_.resume);
}

void RunSession::hold(const std::filesystem::path& folder) {
  if (lock_ || unwritable_) return;
  RunLock::Options how;
  how.remedy += options_.lock_remedy;
  how.stop = [&wishes = options_.wishes] { check_stop(wishes); };
  // A site that comes back may find its former process about to end: over ssh it outlives the
  // connection by a checkpoint. The others wait for the site as long.
  if (options_.site && options_.resume == "auto") how.wait = config_.net.gather;
  try {
    lock_.emplace(folder, how);
  } catch (const ReadOnlyError&) {
    check_nobody_writes(folder);
    if (!options_.ends_complete_run || options_.resume == "never" || !has_ended(folder)) throw;
    unwritable_ = std::current_exception();  // for `run`, unless the run is complete
  }
}

// The checkpoint that the run resumes from must not change until the run continues.
std::optional<Checkpoint> RunSession::checkpoint_to_resume() {
  if (options_.resume != "never" && !options_.out.empty()) hold(options_.out);
  if (options_.site) return std::nullopt;
  return find_resume(storage_, options_.out, options_.resume);
}

void RunSession::check_force() const {
  const std::filesystem::path& out = options_.out;
  if (!options_.force || continues_ || out.empty()) {
    return;
  }
  if (!config_.model.init.empty() &&
      lies_within(config_.locate(config_.model.init), out / "ckpt")) {
    throw ConfigError(
        fmt::format("--force would remove model.init = \"{}\" with the run in '{}': choose another "
                    "--out, or export the model first",
                    config_.model.init.string(), out.string()));
  }
  const auto check_file = [&](const char* key, const std::filesystem::path& file,
                              std::string_view folder) {
    if (file.empty() || !lies_within(file, out / folder)) return;
    throw ConfigError(fmt::format(
        "--force would remove {} = \"{}\" with the run in '{}': choose another --out, or "
        "copy the file first",
        key, file.string(), out.string()));
  };
  for (const LinkConfig& link : config_.links) check_file("link.trace", link.trace, kTracesFolder);
}

void RunSession::take_facts(TrainerFacts facts) {
  facts_ = std::move(facts);
  layout_ = digest_of_layout(facts_.parameters);
  check_to_resume();
}

ResumedRun RunSession::resumed_run() const {
  return {.config = config_,
          .digest = digest_,
          .changes = options_.changes,
          .data = facts_.data,
          .tokens_of_beginning = facts_.tokens_of_beginning,
          .is_site = options_.site.has_value(),
          .workers = options_.plan.workers};
}

void RunSession::check_to_resume() {
  if (!resume_) {
    return;
  }
  check_same_trainer(resume_->info().settings, facts_, resume_->folder().string());
  findings_ = check_resume(storage_, *resume_, resumed_run());
}

bool RunSession::has_ended(const std::filesystem::path& folder) const {
  if (storage_.kind(folder / "summary.json") != FileKind::kFile ||
      storage_.kind(folder / "manifest.json") != FileKind::kFile) {
    return false;
  }
  const nlohmann::json manifest = read_json(read_text(storage_, folder / "manifest.json"));
  const auto status = manifest.is_object() ? manifest.find("status") : manifest.end();
  return manifest.is_object() && status != manifest.end() && *status == "ok";
}

bool RunSession::is_complete() const {
  return options_.ends_complete_run && resume_ && continues_ && !start_.joins &&
         resume_->info().step >= options_.plan.total_steps && has_ended(options_.out);
}

RunOutcome RunSession::completed_before() {
  RunOutcome outcome{.directory = options_.out,
                     .resumed = true,
                     .complete_before = true,
                     .totals = empty_totals(options_.plan.workers)};
  const std::unique_ptr<StateReader> shared = resume_->shared();
  PrefixedStateReader reader(*shared, "totals/");
  outcome.totals.load(reader);
  if (site_) site_->leave();
  return outcome;
}

RunDirectory RunSession::begin_folder(const Manifest& manifest) {
  const RunDirectoryOptions place{.out = options_.out,
                                  .name = config_.run.name,
                                  .run_id = manifest.run_id,
                                  .existing = existing()};
  hold(run_folder(place));
  RunDirectory directory(storage_, place, *lock_);
  if (!start_.joins) {  // of a join that has ended
    storage_.remove_all(directory.path() / PartialStateFile::kFile);
  }
  storage_.remove_all(directory.path() / kResultsFile);  // of a process that was killed
  directory.write_config(config_);
  directory.write_manifest(manifest);
  return directory;
}

void RunSession::fail(const std::exception_ptr& failure, const std::filesystem::path& folder) {
  if (site_ && site_->cut_off() && options_.returns) {
    try {
      std::rethrow_exception(failure);
    } catch (const PeerError& error) {
      if (options_.pending_delta != nullptr) {
        options_.pending_delta->late = site_->late().value_or(LateStatus());
      }
      throw CutOffError(error.what(), folder);
    }
  }
  std::rethrow_exception(failure);
}

RunOutcome RunSession::run(const MakeTrainer& make, RunObserver& observer) {
  if (!options_.out.empty()) hold(options_.out);
  if (options_.site) {
    check_folder({.out = options_.out, .existing = existing()});
    join_sites(observer);
  }
  if (is_complete()) return completed_before();
  if (unwritable_) std::rethrow_exception(unwritable_);
  Manifest manifest = this->manifest();
  RunDirectory directory = begin_folder(manifest);
  RunTotals totals = empty_totals(options_.plan.workers);
  const std::int64_t resumed_step = prepare(directory, totals);

  JsonLinesFile metrics = directory.open_lines("metrics.jsonl", &patience_);
  const WorkerId own = own_worker(config_, options_.site).value_or(WorkerId(0));
  MetricsLog log({.config = config_,
                  .total_steps = options_.plan.total_steps,
                  .simulated = options_.simulated,
                  .byte_scale = options_.byte_scale,
                  .lane = options_.lane,
                  .finished_lanes = options_.finished_lanes,
                  .on_step = options_.on_step,
                  .tensorboard = tensorboard_sink(storage_, config_, directory.path(),
                                                  options_.simulated, resumed_step, &patience_),
                  .status = observer.status(),
                  .self = static_cast<std::size_t>(own.value()),
                  .sources = facts_.evaluation_sources,
                  .keeps_evals = options_.keeps_evals},
                 metrics, observer.progress(), totals);
  if (StatusBoard* const status = observer.status()) {
    status->begin(manifest, totals, directory.path().string());
  }
  observer.begun(directory, manifest, log);
  log.begin(manifest);
  if (const std::string warning = codec_warning(config_); !warning.empty()) {
    log_warning("{}", warning);
  }

  RunOutcome outcome{.directory = directory.path(), .resumed = resumed_step > 0, .totals = {}};
  std::string cause;
  std::exception_ptr failure;
  try {
    train(directory, manifest, log, make, observer, totals, outcome);
  } catch (const std::exception& error) {
    outcome.status = "failed";
    cause = error.what();
    failure = std::current_exception();
    failed_ = true;
  }
  observer.ending();
  close(directory, manifest, log, outcome, cause);
  if (failure) fail(failure, directory.path());
  return outcome;
}

void RunSession::close(RunDirectory& directory, Manifest& manifest, MetricsLog& log,
                       const RunOutcome& outcome, const std::string& cause) {
  if (failed_ && lock_->is_lost()) return;
  const auto attempt = [this](const std::function<void()>& write) {
    try {
      write();
    } catch (const SystemError& error) {
      if (!failed_) throw;
      log_error("{}", error.what());
    }
  };
  attempt([&] { log.end(outcome.status, cause, site_ ? site_->late() : std::nullopt); });
  manifest.status = outcome.status;
  manifest.ended = utc_now();
  attempt([&] { patience_.write("manifest.json", [&] { directory.write_manifest(manifest); }); });
}

std::int64_t RunSession::prepare(RunDirectory& directory, RunTotals& totals) {
  if (resume_) {
    const std::unique_ptr<StateReader> shared = resume_->shared();
    PrefixedStateReader reader(*shared, "totals/");
    totals.load(reader);
  }
  std::int64_t resumed_step = resume_ ? resume_->info().step : 0;
  if (start_.joins) {  // bytes sent before this site joined are not known here
    resumed_step = start_.joins->step.value();
    totals.clock_s = start_.joins->clock_s;
  }
  totals.steps = resumed_step;  // where a site joins it has no lines of steps before
  if ((resume_ || start_.joins) && continues_) {
    // First of all: lines too many are dropped by the next resume, lines too few are lost.
    CheckpointStore store(storage_, directory.checkpoints(), config_.ckpt.keep);
    store.recover();
    store.remove_after(resumed_step);
  }
  if (start_.given_up) {
    const std::filesystem::path aside = directory.set_aside();
    log_warning("the run begins anew: not all sites have its first checkpoint, of step {}{}",
                *start_.given_up,
                aside.empty() ? "" : fmt::format("; what was here is in '{}'", aside.string()));
  }
  directory.truncate_after("metrics.jsonl", resumed_step);
  directory.truncate_after("events.jsonl", resumed_step);
  return resumed_step;
}

void RunSession::train(RunDirectory& directory, const Manifest& manifest, MetricsLog& log,
                       const MakeTrainer& make, RunObserver& observer, RunTotals& totals,
                       RunOutcome& outcome) {
  SiteSession* const site = site_ ? &*site_ : nullptr;
  const RunPlan& plan = options_.plan;
  const std::unique_ptr<SiteStepCoordinator> site_step_coordinator =
      site != nullptr ? make_site_step_coordinator(*site, config_, plan.total_steps, totals.steps,
                                                   log, observer.status())
                      : nullptr;
  const SiteConnection connection(site, site_step_coordinator.get());
  std::function<void(StepIndex, const Digest128&, const std::string&)> tell_outer;
  std::function<void(StepIndex)> await_lines;
  std::function<bool(StepIndex)> of_all_sites;
  if (site != nullptr) {
    site->take_newcomers(
        manifest.run_id,
        [&board = *site_step_coordinator](const WishNote& note) { board.wish_join(note); },
        join_window(config_), plan.total_steps);
    of_all_sites = [&](StepIndex t) {  // at the start all are there for the first step
      return !std::ranges::count(site_step_coordinator->present(std::max(t, StepIndex(1))), false);
    };
    await_lines = [&](StepIndex t) { site_step_coordinator->await_lines(t); };
    tell_outer = [&](StepIndex t, const Digest128& digest, const std::string& tensors) {
      site_step_coordinator->tell_outer(t, digest, tensors);
    };
  }
  LocalStepCoordinator own_board(plan.workers, plan.total_steps, log, options_.wishes);
  Board& board = site_step_coordinator ? static_cast<Board&>(*site_step_coordinator) : own_board;
  Checkpointing checkpointing({.storage = storage_,
                               .held = [this] { lock_->check(); },
                               .patience = &patience_,
                               .folder = directory.checkpoints(),
                               .config = config_,
                               .run_id = manifest.run_id,
                               .config_hash = digest_,
                               .data = facts_.data,
                               .trainer = trainer_values(facts_),
                               .writes = options_.checkpoints,
                               .only = own_worker(config_, options_.site),
                               .of_all_sites = of_all_sites,
                               .await_lines = await_lines,
                               .files = facts_.files},
                              std::move(resume_), totals, log);
  const Duration begun = clock_of(totals);
  std::optional<EventLog> events;
  if (options_.events) {
    events.emplace(
        directory.open_lines("events.jsonl", &patience_),
        begun - (site_step_coordinator ? site_step_coordinator->start().time_since_epoch()
                                       : Duration{0}));
    if (site != nullptr) site->record_into(&*events);
  }
  AnchorMean anchor_mean(plan.workers);
  const RunWorld world{.config = config_,
                       .plan = plan,
                       .simulated = options_.simulated,
                       .byte_scale = options_.byte_scale,
                       .slots = options_.slots,
                       .begun = begun,
                       .emulated = options_.emulated,
                       .site = site,
                       .events = events ? &*events : nullptr,
                       .status = observer.status()};
  if (options_.simulated && totals.measured_step == Duration{0}) {
    totals.measured_step = observer.measure_step();
  }
  const std::unique_ptr<RetainedResults> retained = retained_results(directory);
  const WorkerSetup setup{.config = config_,
                          .plan = plan,
                          .make = make,
                          .board = board,
                          .checkpointing = checkpointing,
                          .anchor_mean = anchor_mean,
                          .events = world.events,
                          .patience = round_patience(config_, options_.simulated),
                          .step_flops = facts_.step_flops,
                          .begun = begun,
                          .measured_step = totals.measured_step,
                          .tell_outer = tell_outer,
                          .retained = retained.get(),
                          .site = site,
                          .growth = findings_.growth,
                          .pending_delta = site != nullptr && site->elastic() && options_.returns
                                               ? options_.pending_delta
                                               : nullptr,
                          .on_own_work = [&](StepIndex t, const RejoinReport& work) {
                            if (site_step_coordinator) site_step_coordinator->came_back(t, work);
                          }};
  WorldResult result;
  try {
    result = run_workers(world, [&](WorkerContext& context) { run_worker(setup, context); });
  } catch (const PeerError&) {
    if (site_step_coordinator) site_step_coordinator->explain();
    throw;
  }
  if (site != nullptr) {
    site_step_coordinator->flush();
    site->leave();
    site_step_coordinator->check();
  }
  outcome.stopped = board.stopped() != StopWish::kNone;
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
  outcome.totals = totals;
  outcome.evals = log.evals();
  if (site != nullptr) outcome.late = site->late();
  patience_.write("the run's summary",
                  [&] { observer.finished(directory, outcome, world, result); });
}

std::unique_ptr<RetainedResults> RunSession::retained_results(const RunDirectory& directory) {
  if (!site_ || !retains_results(config_)) {
    return nullptr;
  }
  return std::make_unique<RetainedResults>(
      storage_, directory.path() / kResultsFile,
      RetainedResults::Room{.most_bytes = retained_bytes(config_),
                            .free_bytes = [path = directory.path()] {
                              return std::filesystem::space(path).available;
                            }});
}

SiteFacts RunSession::site_facts() const {
  SiteFacts facts{
      .run_id = random_id(),
      .layout = layout_,
      .common = common_values(config_),
      .resumes = options_.resume == "auto",
      .folder = options_.out,
      .held = {},
      .late = options_.pending_delta != nullptr ? options_.pending_delta->late : LateStatus()};
  append_shares(config_, facts.common);
  facts.common.emplace_back("outer.commit, given where sites may be lost",
                            takes_steps_back(config_, *options_.site) ? "yes" : "no");
  facts.common.emplace_back("layout of the model", facts.layout.hex());
  if (config_.net.start == "first") facts.common.emplace_back("net.start", "first");
  facts.common.emplace_back(std::string(kEvaluation), evaluation_in_words(facts_));
  append_data(facts_.data, facts.common);
  for (auto& value : trainer_values(facts_)) facts.common.push_back(std::move(value));
  if (facts.resumes) {
    HeldCheckpoints here =
        held_checkpoints(storage_, options_.out, resumed_run(), site_of(config_, *options_.site));
    facts.held = std::move(here.held);
    facts.unreadable = here.unreadable;
  }
  return facts;
}

void RunSession::join_sites(RunObserver& observer) {
  const SiteFacts facts = site_facts();
  site_.emplace(config_, *options_.site, facts, options_.wishes, observer.status(),
                options_.recording);
  PendingDelta none;
  PendingDelta& hand = options_.pending_delta != nullptr ? *options_.pending_delta : none;
  start_ = site_->gather([&](const std::string& what) { observer.waiting(what); },
                         {.goes_on = [&] { return hand.training && hand.training->trains(); },
                          .end = [&] { hand.end_training(); }});
  for (const HeldCheckpoint& held : facts.held) {
    if (start_.joins && held.run_id != start_.run_id) {
      throw ConfigError(fmt::format(
          "'{}' holds checkpoints of run {}, and the others are in run {}: give another --out, or "
          "--force",
          options_.out.string(), held.run_id, start_.run_id));
    }
  }
  if (start_.resume_after) {
    const std::filesystem::path checkpoints = options_.out / "ckpt";
    CheckpointStore(storage_, checkpoints, config_.ckpt.keep).recover();
    resume_ = Checkpoint::open(storage_, checkpoints / step_name(*start_.resume_after));
    check_to_resume();
  }
}

std::vector<ConfigChange> RunSession::changes_before(std::int64_t step) const {
  std::vector<ConfigChange> changes;
  const std::filesystem::path file = options_.out / "manifest.json";
  if (options_.out.empty() || storage_.kind(file) != FileKind::kFile) return changes;
  const nlohmann::json manifest = read_json(read_text(storage_, file));
  if (!manifest.is_object() || !manifest.contains("changes")) return changes;
  for (const nlohmann::json& each : manifest["changes"]) {
    if (!each.is_object() || each.value("after_step", std::int64_t{0}) >= step) continue;
    changes.push_back({each.value("after_step", std::int64_t{0}), each.value("change", "")});
  }
  return changes;
}

// A session that was killed before its first checkpoint has changed nothing: a change that it noted
// at the step from which this session resumes is noted anew, or not at all.
std::vector<ConfigChange> RunSession::changes() const {
  if (start_.joins) return changes_before(std::numeric_limits<std::int64_t>::max());
  if (!resume_) return {};
  const std::int64_t step = resume_->info().step;
  std::vector<ConfigChange> changes;
  if (continues_) changes = changes_before(step);
  for (const std::string& line : changes_at(*resume_, resumed_run(), findings_)) {
    const bool is_noted =
        std::ranges::any_of(changes, [&](const ConfigChange& each) { return each.change == line; });
    if (is_noted) continue;
    changes.push_back({step, line});
    log_info("the run goes on with {}", line);
  }
  return changes;
}

Manifest RunSession::manifest() const {
  Manifest manifest = make_manifest(config_, options_.command, options_.argv);
  manifest.config_hash = digest_;
  manifest.simulated = options_.simulated;
  manifest.surrogate = options_.simulated ? config_.surrogate : std::nullopt;
  manifest.parameters = facts_.values();
  manifest.model = facts_.model;
  manifest.device = facts_.device;
  manifest.data = facts_.data;
  manifest.changes = changes();
  if (resume_) {
    if (continues_) {
      manifest.run_id = resume_->info().run_id;  // the same run
    } else {
      manifest.parent = resume_->info().run_id;
    }
  } else if (!start_.run_id.empty()) {
    manifest.run_id = start_.run_id;
  }
  return manifest;
}

}  // namespace isthmus::app
