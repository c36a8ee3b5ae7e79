// SPDX-License-Identifier: Apache-2.0
// A run of the built-in trainer: the model's layout, data, device and memory with their checks, and
// the answers to the run's session (session/run_session.h).
#include "app/train/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/common/signals.h"
#include "app/observe/progress.h"
#include "app/observe/run_watch.h"
#include "app/train/checkpoint_room.h"
#include "app/train/config_to_options.h"
#include "app/train/hf_model.h"
#include "app/train/language_model_trainer.h"
#include "app/train/last_windows.h"
#include "app/train/memory_check.h"
#include "app/train/model_json.h"
#include "app/train/model_steps.h"
#include "app/train/offload.h"
#include "app/train/rank_communicators.h"
#include "app/train/run_prediction.h"
#include "app/train/run_summary.h"
#include "app/train/training_plan.h"
#include "config/schema/device_request.h"
#include "core/base/log.h"
#include "core/base/system_runtime.h"
#include "data/appended_data.h"
#include "data/batch_source.h"
#include "data/tokenize/conversation_data.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "inner/model/model_layout.h"
#include "inner/model/schedule.h"
#include "kernels/isa.h"
#include "record/run_directory.h"
#include "session/run/run_backends.h"
#include "session/run_checks.h"
#include "session/run_session.h"
#include "session/site/site_links.h"

namespace isthmus::app {
namespace {

/// The run's data, not yet hashed, unless they are open already.
std::optional<OpenData> open_own(const Storage& storage, const Config& config,
                                 const TrainingRequest& request, const RunSession& run) {
  if (request.side_by_side && request.side_by_side->data != nullptr) {
    return std::nullopt;
  }
  const std::optional<std::vector<DataFile>> begun = run.begun_with();
  const ReadingRules rules = begun ? rules_of(*begun) : ReadingRules::kOfToday;
  return OpenData{open_data(storage, config, rules), {}};
}

/// Reads the requested tokens once: checkpoints of a run mostly have the same data.
TokensOfBeginning beginnings_of(const Dataset& data) {
  using Known = std::vector<std::pair<std::vector<DataFile>, Expected<std::int64_t, std::string>>>;
  return [&data, known = Known()](std::span<const DataFile> before) mutable {
    for (const auto& [files, tokens] : known) {
      if (std::ranges::equal(files, before)) return tokens;
    }
    known.emplace_back(std::vector(before.begin(), before.end()),
                       tokens_of_beginning(data, before));
    return known.back().second;
  };
}

/// One run of the built-in trainer, from checks to summary.
class Training final : public RunObserver {
 public:
  /// Checks everything that can be wrong before anything is written. Borrows all three.
  /// THROWS: ConfigError, SystemError.
  Training(const Config& config, const TrainingRequest& request, Session& session);

  TrainingOutcome run();

 private:
  void choose_device();
  void check();
  /// The options of the run's session, which reads the plan once the checks are done.
  [[nodiscard]] SessionOptions session_options() const;
  [[nodiscard]] TrainerFacts facts() const;
  /// The files beside the weights in each checkpoint.
  [[nodiscard]] HfCompanions companions() const;
  [[nodiscard]] ModelRun model_run(const RunWorld& world) const {
    return {.world = world, .plan = plan_, .layout = layout_};
  }
  /// Opens the pages about the run, where they are asked for.
  void let_watch();
  /// One line about the computing device, and why a device that exists does not compute.
  void tell_device() const;
  /// Warns of data that are read too often, and tells the parts of model.init that checkpoints
  /// leave out.
  void tell_data() const;
  /// Warns of steps that no round carries, and of those that model.init lacks.
  void tell_end() const;
  /// The prediction of the closed form for the finished run.
  void predict(const RunWorld& world, const WorldResult& result);

  [[nodiscard]] ProgressView* progress() override { return progress_ ? &*progress_ : nullptr; }
  [[nodiscard]] StatusBoard* status() override { return watch_ ? &watch_->board() : nullptr; }
  void waiting(const std::string& what) override;
  void begun(const RunDirectory& directory, const Manifest& manifest, MetricsLog& log) override;
  [[nodiscard]] Duration measure_step() override;
  void finished(RunDirectory& directory, const RunOutcome& outcome, const RunWorld& world,
                const WorldResult& result) override;
  void ending() override { progress_.reset(); }

  SystemStorage storage_;
  const Config& config_;
  const TrainingRequest& request_;
  Session& session_;
  ModelLayout layout_;
  TrainingPlan plan_;
  std::optional<RunWatch> watch_;
  std::optional<Progress> progress_;
  TrainingOutcome outcome_;
  RunSession run_;                    // borrows watch_ and progress_
  std::optional<OpenData> own_data_;  // nothing where it is shared with other runs
  const Dataset& data_;
  std::int64_t eval_tokens_;
  InitialWeights initial_weights_;  // the findings of their check
  std::string further_tokens_;      // of check_tokenizer
  TokensOfBeginning tokens_of_beginning_ = beginnings_of(data_);
};

Training::Training(const Config& config, const TrainingRequest& request, Session& session)
    : config_(config),
      request_(request),
      session_(session),
      layout_(model_shape(config.model, config.train.context)),
      plan_(make_training_plan(config, kernels::usable_cores(), own_worker(config, request.site))),
      run_(session_options()),
      own_data_(open_own(storage_, config, request, run_)),
      data_(own_data_ ? own_data_->data : request.side_by_side->data->data),
      eval_tokens_(app::eval_tokens(config, data_)) {
  plan_.processes = request.mesh;
  plan_.json = session.json;
  choose_device();
  if (!request.side_by_side) {
    kernels::use_isa(kernels::isa_named(config.train.kernels));
  }
  check();
  run_.check_force();
  if (own_data_) {
    own_data_->fingerprint = data_.fingerprint();
  }
  run_.take_facts(facts());
}

SessionOptions Training::session_options() const {
  const std::optional<SideBySide>& beside = request_.side_by_side;
  return {.config = config_,
          .plan = plan_,
          .wishes = SignalScope::wishes(),
          .command = request_.command,
          .argv = session_.argv,
          .out = request_.out.empty() ? config_.run.out : request_.out,
          .resume = request_.resume,
          .force = request_.force,
          .simulated = request_.simulated,
          .emulated = request_.emulated,
          .slots = beside ? beside->slots : 0,
          .byte_scale = request_.simulated ? surrogate_byte_scale(config_, layout_) : 1.0,
          .checkpoints = !beside || beside->checkpoint,
          .events = !beside || beside->events,
          .keeps_evals = beside.has_value(),
          .lane = request_.lane,
          .finished_lanes = request_.finished_lanes,
          .on_step = beside ? beside->on_step : nullptr,
          .site = request_.site,
          .recording = request_.recording,
          .pending_delta = request_.pending_delta,
          .returns = request_.mesh == nullptr,
          .ends_complete_run = request_.mesh == nullptr,  // its other processes serve a trainer
          .lock = request_.lock,
          .lock_remedy = request_.lock_remedy,
          .changes = request_.changes};
}

TrainerFacts Training::facts() const {
  std::vector<std::pair<std::string, std::string>> common;
  if (config_.model.lora.rank > 0) {
    common.emplace_back(kFrozenWeights, initial_weights_.base_digest);
  }
  return {.parameters = parameters_without_values(layout_),
          .common = std::move(common),
          .evaluation_parts = evaluation_parts(config_, data_),
          .evaluation_sources = evaluation_sources(config_, data_),
          .step_flops = step_flops(config_, plan_, layout_),
          .model = model_json(config_, layout_.elements()),
          .device = device_text(plan_.device, plan_),
          .data = own_data_ ? own_data_->fingerprint : request_.side_by_side->data->fingerprint,
          .tokens_of_beginning = tokens_of_beginning_,
          .files = companions().files};
}

HfCompanions Training::companions() const {
  const std::filesystem::path init =
      config_.model.init.empty() ? std::filesystem::path() : config_.locate(config_.model.init);
  HfCompanions companions = hf_companions(storage_, layout_.shape(), init, data_.is_bytes());
  if (init.empty()) {
    if (const auto tokenizer = tokenizer_of_data(storage_, config_, data_)) {
      for (const std::string& note :
           add_tokenizer(companions, storage_, *tokenizer, layout_.shape().vocab)) {
        log_warning("{}", note);
      }
    }
  }
  if (layout_.shape().lora.rank > 0) {
    companions.files.emplace_back(
        kAdapterConfig,
        adapter_config_text(layout_.shape(), std::filesystem::absolute(init).string()));
  }
  return companions;
}

void Training::choose_device() {
  const auto refuse = [](const std::string& key, const char* remedy) {
    throw ConfigError(fmt::format("{}: runs side by side compute on the CPU; {}", key, remedy));
  };
  if (!request_.side_by_side) {
    plan_.device = app::choose_device(config_, plan_, layout_, request_.simulated);
  } else if (asks_for_cuda(config_)) {
    refuse(fmt::format("train.device = \"{}\"", config_.train.device), "leave it out");
  } else if (config_.train.attention == "cudnn" && !request_.simulated) {
    refuse("train.attention = \"cudnn\"", "set it to \"own\"");
  } else if (outer_is_on_device(config_) && !request_.simulated) {
    refuse("outer.placement = \"device\"", "set it to \"host\"");
  }
}

void Training::check() {
  check_data_and_exchange(config_, plan_, layout_, data_);
  further_tokens_ = check_tokenizer(storage_, config_, data_, run_.begun_with().has_value());
  check_run(
      config_,
      {.simulated = request_.simulated, .emulated = request_.emulated, .site = request_.site});
  (void)LearningRateSchedule(config_.inner, plan_.total_steps);
  check_offload(config_, plan_, layout_, own_worker(config_, request_.site));
  check_memory(config_, plan_, layout_, memory_limit(), request_.command == "train");
  check_rank_communicators(config_, plan_);
  if (!request_.side_by_side) {
    const std::filesystem::path out = request_.out.empty() ? config_.run.out : request_.out;
    const CheckpointPlace place{.out = out,
                                .only = own_worker(config_, request_.site),
                                .goes_on = request_.resume == "auto"};
    check_checkpoint_room(checkpoint_room(storage_, config_, plan_, layout_, place), config_, out);
  }
  initial_weights_ = check_initial_weights(storage_, config_);
  if (!config_.log.http.empty()) {
    (void)parse_http_address("log.http", config_.log.http);
  }
}

void Training::let_watch() {
  if (request_.side_by_side || config_.log.http.empty()) {
    return;
  }
  HttpAddress address = parse_http_address("log.http", config_.log.http);
  if (address.port > 0 && request_.site && request_.site->mpi) {
    address.port += own_worker(config_, request_.site)->value();  // several may be on one machine
  }
  StatusBoard::Options options;
  options.total_steps = plan_.total_steps;
  options.simulated = request_.simulated;
  options.stalled_after = config_.log.stalled_after;
  for (const SiteConfig& site : config_.sites) options.sites.push_back(site.name);
  options.self = own_worker(config_, request_.site);
  options.hub = request_.site && has_hub(config_, *request_.site);
  options.links_tell = !(request_.site && request_.site->mpi);
  watch_.emplace(storage_, address, std::move(options));
  if (request_.site) watch_->board().waiting("all of them");
}

void Training::tell_device() const {
  if (request_.side_by_side) return;
  log_info("the inner loop computes on {}{}", device_text(plan_.device, plan_),
           plan_.device.note.empty() ? "" : ": " + plan_.device.note);
}

void Training::tell_data() const {
  if (request_.side_by_side) return;
  for (const std::string& text : conversations_texts(data_)) log_info("{}", text);
  for (const std::string& note : notes_on_data(config_, data_)) log_warning("{}", note);
  if (config_.model.init.empty()) return;
  const ModelNotes notes =
      model_notes(storage_, config_.locate(config_.model.init), layout_.shape(),
                  initial_weights_.not_read, data_.is_bytes());
  if (!notes.left_out.empty()) {
    log_info("checkpoints leave out of model.init = \"{}\": {}", config_.model.init.string(),
             fmt::join(notes.left_out, ", "));
  }
  for (const std::string& note : notes.odd) log_warning("{}", note);
  if (!further_tokens_.empty()) log_warning("{}", further_tokens_);
}

void Training::tell_end() const {
  if (request_.side_by_side) return;  // a comparison says it of all its variants together
  for (const std::string& text : warnings_about_end(config_, run_end_of(config_, layout_))) {
    log_warning("{}", text);
  }
  for (const std::string& text :
       {short_of_inner_warmup(config_), unapplied_text_of_init(storage_, config_)}) {
    if (!text.empty()) log_warning("{}", text);
  }
}

TrainingOutcome Training::run() {
  std::optional<SignalScope> signals;
  if (!request_.side_by_side) {
    signals.emplace();
    progress_.emplace(session_.err, session_.progress);
  }
  if (request_.resume == "never") tell_end();
  let_watch();
  outcome_.parameters = layout_.elements();
  outcome_.simulated = request_.simulated;
  const MakeTrainer make = [&](const WorkerContext& context,
                               EventSink* events) -> std::unique_ptr<Trainer> {
    return std::make_unique<LanguageModelTrainer>(
        LanguageModelTrainer::Setup{.config = config_,
                                    .plan = plan_,
                                    .storage = storage_,
                                    .data = data_,
                                    .eval_tokens = eval_tokens_,
                                    .events = events},
        context.rank, context.runtime);
  };
  try {
    const RunOutcome outcome = run_.run(make, *this);
    if (outcome.complete_before) static_cast<RunOutcome&>(outcome_) = outcome;
  } catch (...) {
    progress_.reset();  // before signals are the program's again
    throw;
  }
  return outcome_;
}

void Training::waiting(const std::string& what) {
  if (watch_) watch_->board().waiting(what);
  session_.err.write(fmt::format("isthmus: waiting for the other sites: {}\n", what));
}

void Training::begun(const RunDirectory& directory, const Manifest& manifest, MetricsLog& log) {
  if (watch_) {
    watch_->announce(directory.path(), manifest.run_id);
  }
  if (request_.mesh != nullptr) {
    request_.mesh->on_finding = [this, &log](const RankFinding& finding) {
      log.rank(StepIndex(request_.mesh->step), finding);
    };
  }
  tell_device();
  tell_data();
  if (request_.resume != "never") tell_end();  // nothing is left to say of a run that was complete
}

Duration Training::measure_step() { return app::measure_step(config_, plan_, data_); }

void Training::finished(RunDirectory& directory, const RunOutcome& outcome, const RunWorld& world,
                        const WorldResult& result) {
  static_cast<RunOutcome&>(outcome_) = outcome;
  predict(world, result);
  write_summary(directory, config_, outcome_, result);
}

void Training::predict(const RunWorld& world, const WorldResult& result) {
  const RunTotals& totals = outcome_.totals;
  const ModelRun run = model_run(world);
  // The closed form speaks of the whole run.
  if (request_.simulated && !outcome_.stopped) {
    outcome_.prediction = predict_run(run, {totals.measured_step});
    if (!config_.faults.empty()) {
      outcome_.faults = cost_of_faults(config_, *outcome_.prediction, totals.measured_step,
                                       totals.clock_s, outcome_.resumed);
    }
  }
  if (has_real_links(world) && !outcome_.stopped && !outcome_.resumed) {
    outcome_.prediction = predict_run(run, totals.mean_steps());
    if (world.site != nullptr) {
      outcome_.links_absent = why_links_were_absent(config_, *outcome_.prediction, totals.clock_s);
    }
  }
  // The rounds that faults lengthen are not known, and single rounds of runs side by side are not
  // shown.
  if (outcome_.prediction && !outcome_.faults && !request_.side_by_side) {
    const std::vector<Duration> steps =
        request_.simulated ? std::vector{totals.measured_step} : totals.mean_steps();
    outcome_.rounds = compare_rounds(predict_run_rounds(run, steps), result.rounds);
    const WorkerId own = own_worker(config_, request_.site).value_or(WorkerId(0));
    outcome_.rounds_at = config_.sites.at(static_cast<std::size_t>(own.value())).name;
  }
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
