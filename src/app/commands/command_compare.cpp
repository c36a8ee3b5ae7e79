// SPDX-License-Identifier: Apache-2.0
// `compare FILE`: variants over a base, tuned alike, trained on the same seeds, told apart or not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/common/commands.h"
#include "app/common/signals.h"
#include "app/compare/cell_program.h"
#include "app/compare/cell_runner.h"
#include "app/compare/comparison_checks.h"
#include "app/compare/comparison_estimate.h"
#include "app/compare/comparison_files.h"
#include "app/compare/comparison_links.h"
#include "app/compare/comparison_rules.h"
#include "app/compare/comparison_text.h"
#include "app/compare/finished_cells.h"
#include "app/compare/reference_curves.h"
#include "app/train/training.h"
#include "core/base/followed_links.h"
#include "core/base/log.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "kernels/isa.h"
#include "record/build_info.h"
#include "report/page/comparison_report.h"

namespace isthmus::app {
namespace {

/// Names given to --require; "all" means every one.
std::vector<std::string> required(const CompareArguments& arguments, const Experiment& experiment,
                                  const ComparisonPlan& plan) {
  std::vector<std::string> names;
  std::vector<std::string> known;
  for (const std::size_t v : plan.variants()) {
    known.push_back(experiment.variants()[v].name);
  }
  for (const std::string& name : arguments.require) {
    if (name == "all") {
      return known;
    }
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = closest(name, known);
      throw UsageError(fmt::format("--require: no variant '{}'; {}", name,
                                   near ? fmt::format("did you mean '{}'?", *near)
                                        : fmt::format("variants: {}", join(known))));
    }
    names.push_back(name);
  }
  return names;
}

Experiment experiment_of(const CompareArguments& arguments) {
  Overrides overrides(arguments.overrides);
  if (arguments.seeds) overrides.add(*arguments.seeds);
  if (arguments.program.given()) {
    overrides.add({.text = "train.trainer=\"external\"",
                   .flag = "--program",
                   .given = arguments.program.command});
  }
  if (arguments.against.empty()) {
    return Experiment::load(arguments.config, overrides, schema_context());
  }
  return Experiment::load_text(reference_named(arguments.against).toml, arguments.against,
                               overrides, schema_context());
}

/// One comparison, from its checks to its verdict.
class CompareCommand {
 public:
  CompareCommand(const CompareArguments& arguments, Session& session)
      : arguments_(arguments),
        session_(session),
        experiment_(experiment_of(arguments)),
        inputs_(storage_, arguments.program),
        plan_(experiment_, {.quick = arguments.quick,
                            .only = arguments.only,
                            .tried = tried_before(),
                            .inputs = [this](const Config& config) { return inputs_of(config); }}),
        required_(required(arguments, experiment_, plan_)) {}

  int run() {
    if (!arguments_.judge.empty()) {
      return judge();
    }
    check();
    if (arguments_.dry_run) {
      return estimate();
    }
    const Manifest facts_of_run = make_manifest(baseline_, "compare", session_.argv);
    facts_ = {.run_id = facts_of_run.run_id,
              .started = facts_of_run.started,
              .argv = session_.argv,
              .quick = arguments_.quick,
              .cells = plan_.total(),
              .data = inputs_.files()};
    const RunDirectoryOptions place{.out = out(),
                                    .name = baseline_.run.name,
                                    .run_id = facts_.run_id,
                                    .existing = arguments_.resume  ? ExistingRun::kResume
                                                : arguments_.force ? ExistingRun::kForce
                                                                   : ExistingRun::kRefuse};
    const RunLock lock(run_folder(place), {.cells = true});
    check_cells_are_free(storage_, lock.folder());
    check_resumed_folder();
    RunDirectory directory(storage_, place, lock);
    if (!arguments_.resume) {
      remove_cells(storage_, directory.path());
    }
    write_atomically(storage_, directory.path() / "config.toml", experiment_.text());
    write_comparison_manifest(directory, experiment_, plan_, facts_);
    storage_.remove_all(directory.path() / "summary.json");  // of an earlier start: no longer true
    CellStore store(storage_, directory.path() / "cells.jsonl");
    if (store.damaged() > 0) {
      log_warning("cells.jsonl: {} torn or damaged line{} cut out; these cells are run again",
                  store.damaged(), store.damaged() == 1 ? "" : "s");
    }
    return train(directory, lock, store);
  }

 private:
  [[nodiscard]] std::filesystem::path out() const {
    return arguments_.out.empty() ? baseline_.run.out : arguments_.out;
  }

  /// Seeds of the trials that are judged, or gone on with.
  [[nodiscard]] std::vector<std::int64_t> tried_before() const {
    std::filesystem::path cells = arguments_.judge;
    if (arguments_.resume) {
      const std::filesystem::path of_file = experiment_.config(experiment_.baseline(), {}).run.out;
      cells = (arguments_.out.empty() ? of_file : arguments_.out) / "cells.jsonl";
    }
    std::vector<std::int64_t> seeds;
    if (followed_kind(storage_, cells) != FileKind::kFile) return seeds;
    for (const report::CellResult& cell : report::read_cells(read_text(storage_, cells)).cells) {
      if (cell.stage == report::CellStage::kTune) seeds.push_back(cell.seed);
    }
    return seeds;
  }

  /// Without --judge: the inputs that tell one text or initial model from another.
  [[nodiscard]] std::string inputs_of(const Config& config) {
    return arguments_.judge.empty() ? inputs_.of(config) : "";
  }

  int judge() {
    if (arguments_.resume || arguments_.force || arguments_.dry_run || !arguments_.out.empty()) {
      throw UsageError(
          "--judge together with --out, --resume, --force or --dry-run: it runs and writes "
          "nothing");
    }
    const FinishedCells cells(storage_, arguments_.judge, experiment_);
    const DataFacts facts = cells.fill(plan_);
    for (const Cell& cell : plan_.outline()) {
      if (cell.variant == plan_.variants()[plan_.baseline()]) {
        baseline_ = cell.config;
      }
    }
    data_ = [facts](const Config&) { return facts; };
    facts_.status = "ok";
    weaknesses_ = weaknesses_of(experiment_, plan_, data_);
    const report::Comparison comparison = judged(RetimedFor::kTable);
    tell(comparison, comparison_json(comparison, facts_, ""));
    return verdict_on_requirements(comparison);
  }

  /// Everything that can be wrong, before anything is written.
  void check() {
    if (!arguments_.against.empty() && arguments_.quick) {
      throw UsageError(
          "--against together with --quick: the reference has no shortened runs; --seeds 1 is the "
          "shortest check");
    }
    if (!arguments_.against.empty() && arguments_.program.given()) {
      throw UsageError(
          "--against together with --program: a reference says how the built-in trainer trains");
    }
    if (arguments_.resume && arguments_.force) {
      throw UsageError(
          "--resume together with --force: one keeps the cells, the other removes them");
    }
    if (experiment_.config(plan_.variants()[plan_.baseline()], {}).train.trainer == "external") {
      check_programs_cells();
    } else {
      check_trainers_cells();
    }
    weaknesses_ = weaknesses_of(experiment_, plan_, data_);
  }

  /// Of runs that a program of the user's makes.
  void check_programs_cells() {
    if (!arguments_.program.given()) {
      throw ConfigError(
          fmt::format("{}: train.trainer = \"external\" and no --program: the trainer is in a "
                      "program of yours; "
                      "give it, as in --program \"python train.py\"",
                      experiment_.file().string()));
    }
    std::set<std::string> own;
    for (const Cell& cell : plan_.outline()) {
      if (cell.number != 0) continue;
      const std::string& name = experiment_.variants()[cell.variant].name;
      check_program(arguments_.program, cell.config, cell.simulated, name);
      for (const std::string& key : keys_of_own_trainer(cell.config)) own.insert(key);
      if (cell.stage == report::CellStage::kSeed &&
          cell.variant == plan_.variants()[plan_.baseline()]) {
        baseline_ = cell.config;
      }
    }
    if (!own.empty()) {
      log_warning("--program: the built-in trainer alone obeys {}; the program may read {}",
                  fmt::join(own, ", "), own.size() == 1 ? "it" : "them");
    }
    // A program's losses may be of anything.
    data_ = [](const Config&) { return DataFacts{0, 0}; };
  }

  /// Of runs of the built-in trainer.
  void check_trainers_cells() {
    std::string kernels;
    if (!arguments_.against.empty()) {
      reference_ = runs_of(reference_named(arguments_.against));
    }
    std::vector<std::string> notes;  // of the first that has each of them, for all
    const auto add_note = [&notes](const std::string& note) {
      if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    };
    bool many_passes = false;
    for (const Cell& cell : plan_.outline()) {
      if (cell.number != 0) {
        continue;
      }
      const std::string& name = experiment_.variants()[cell.variant].name;
      if (!kernels.empty() && kernels != cell.config.train.kernels) {
        throw ConfigError(fmt::format(
            "{}: variant '{}' has train.kernels = \"{}\", others \"{}\": one program runs all, so "
            "it must be the same",
            experiment_.file().string(), name, cell.config.train.kernels, kernels));
      }
      kernels = cell.config.train.kernels;
      check_training(cell.config,
                     {.command = "compare",
                      .simulated = cell.simulated,
                      .side_by_side = SideBySide{.data = &inputs_.data(cell.config)}},
                     session_);
      if (eval_tokens(cell.config, inputs_.data(cell.config).data) < 0) {
        throw ConfigError(fmt::format(
            "{}: variant '{}': data.val_fraction = {} leaves no window of train.context = {} to "
            "evaluate on, and losses are what is compared: raise it",
            experiment_.file().string(), name, cell.config.data.val_fraction,
            cell.config.train.context));
      }
      if (!arguments_.against.empty()) {
        check_evaluations(reference_, arguments_.against, name, cell.config);
      }
      if (cell.stage == report::CellStage::kSeed) {
        const std::filesystem::path out =
            arguments_.out.empty() ? cell.config.run.out : arguments_.out;
        const bool keeps = experiment_.settings().checkpoints;
        const RunEstimate run = estimate_run(cell.config, cell.simulated,
                                             {.out = keeps ? std::optional(out) : std::nullopt});
        if (run.checkpoints) checkpoints_[cell.variant] = *run.checkpoints;
        memory_bytes_ = std::max(memory_bytes_, run.memory_bytes);
        if (!many_passes) add_note(run.data_note);
        many_passes = many_passes || !run.data_note.empty();
        std::ranges::for_each(run.data_warnings, add_note);
        widest_ = std::max(widest_, cell.simulated ? 1 : cell.config.workers());
        if (cell.variant == plan_.variants()[plan_.baseline()]) {
          baseline_ = cell.config;
        }
      }
    }
    check_checkpoints_fit();
    for (const std::string& note : notes) log_warning("{}", note);
    kernels::use_isa(kernels::isa_named(kernels));
    data_ = [this](const Config& config) {
      const Dataset& data = inputs_.data(config).data;
      return DataFacts{data.train_tokens(), data.entropy_rate().value_or(0)};
    };
  }

  /// Each run that is compared leaves one. THROWS: SystemError when the disk cannot hold all.
  void check_checkpoints_fit() const {
    if (checkpoints_.empty() || arguments_.resume || arguments_.force) return;  // some are there
    std::uint64_t all = 0;
    for (const Cell& cell : plan_.outline()) {
      const auto room = checkpoints_.find(cell.variant);
      if (cell.stage == report::CellStage::kSeed && room != checkpoints_.end()) {
        all += room->second.each;
      }
    }
    const std::uint64_t free = checkpoints_.begin()->second.free;
    if (all <= free) return;
    throw SystemError(fmt::format(
        "'{}': the checkpoints of all runs (compare.checkpoints) take {}, and {} are free there: "
        "free space, set compare.checkpoints = false, or give --out on another disk",
        out().empty() ? "runs" : out().string(), human_bytes(static_cast<double>(all)),
        human_bytes(static_cast<double>(free))));
  }

  /// --resume overwrites the settings that a run records.
  void check_resumed_folder() const {
    if (arguments_.resume && out().empty()) {
      throw ConfigError("--resume: which comparison? give its folder with --out or run.out");
    }
    const std::string command = command_of(storage_, out());
    if (arguments_.resume && !command.empty() && command != "compare") {
      throw ConfigError(
          fmt::format("--resume: '{}' holds a run of `isthmus {}`, no comparison; choose another "
                      "--out, or --force to replace it",
                      out().string(), command));
    }
  }

  [[nodiscard]] int cores() const {
    const int usable = machine_info().cores;
    const int asked = baseline_.train.threads;
    return asked > 0 ? std::min(asked, usable) : usable;
  }
  [[nodiscard]] JobLimit jobs() const {
    return job_limit(cores(), widest_, memory_bytes_, machine_info().available_bytes,
                     arguments_.jobs);
  }

  int estimate() {
    std::set<std::string> known;
    const std::filesystem::path cells = out() / "cells.jsonl";
    if (arguments_.resume && storage_.kind(cells) == FileKind::kFile) {
      for (const report::CellResult& cell : report::read_cells(read_text(storage_, cells)).cells) {
        known.insert(cell.key);
      }
    }
    const ComparisonEstimate estimate = estimate_comparison(experiment_, plan_, known, jobs());
    if (session_.json) {
      session_.out.write(estimate_json(experiment_, estimate) + "\n");
      return 0;
    }
    session_.out.write(render_estimate(experiment_, plan_, estimate, session_.out));
    for (const std::string& note : weaknesses_) {
      session_.out.write(paragraph("note: " + note, 2));
    }
    return 0;
  }

  /// A folder begun by a version with another default holds runs that no cell of today matches.
  void warn_of_former_default() const {
    const std::filesystem::path path = out() / "cells.jsonl";
    if (!arguments_.resume || storage_.kind(path) != FileKind::kFile) return;
    std::set<std::string> finished;
    for (const report::CellResult& cell : report::read_cells(read_text(storage_, path)).cells) {
      finished.insert(cell.configuration);
    }
    for (const Cell& cell : plan_.outline()) {
      if (!finished.contains(digest_under_former_default(cell.config))) continue;
      log_warning(
          "--resume: {} holds runs of {} with outer.final_sync = \"drain\", the default of an "
          "earlier version; {} leaves the key open, which means \"full\", so they are run again; "
          "to "
          "keep them stop here and say final_sync = \"drain\" in its [outer] and variants",
          path.string(), experiment_.variants()[cell.variant].name, experiment_.file().string());
      return;
    }
  }

  int train(RunDirectory& directory, const RunLock& lock, CellStore& store) {
    const SignalScope signals;
    if (session_.verbose == 0) {
      set_log_level(LogLevel::kWarning);  // a single run would print its lines a hundred times
    }
    if (!baseline_.log.http.empty()) {
      log_warning("log.http: a comparison's runs are not served; it is for train and simulate");
    }
    warn_of_former_default();
    for (const std::string& text : lost_steps_of(experiment_, plan_)) log_warning("{}", text);
    RunnerOutcome outcome;
    try {
      outcome = run_cells(plan_, store, experiment_, inputs_,
                          {.folder = directory.path(),
                           .lock = lock,
                           .cores = cores(),
                           .jobs = jobs().jobs,
                           .checkpoints = experiment_.settings().checkpoints,
                           .program = arguments_.program},
                          session_);
    } catch (const std::exception&) {
      if (!lock.is_lost()) settle(directory, "failed");
      throw;
    }
    facts_.run = outcome.run;
    facts_.reused = outcome.reused;
    facts_.cells = plan_.total();
    if (outcome.stopped) {
      return stopped(directory);
    }
    settle(directory, "ok");
    if (!arguments_.against.empty()) {
      return tell_reference(directory);
    }
    const report::Comparison comparison = judged(RetimedFor::kPage);
    const std::string json = comparison_json(comparison, facts_, directory.path());
    directory.write_json("summary.json", json);
    session_.saved = fmt::format("the comparison is complete and saved in '{}' (summary.json)",
                                 directory.path().string());
    report::write_comparison_report(report::read_comparison(directory.path()),
                                    directory.path() / "report.html",
                                    {.generated = utc_now(),
                                     .command = "isthmus report " + directory.path().string(),
                                     .other_links = comparison.other_links});
    tell(comparison, json);
    if (!session_.json) {
      session_.out.write(
          fmt::format("files   {} (the page: report.html)\n", directory.path().string()));
    }
    return verdict_on_requirements(comparison);
  }

  void settle(RunDirectory& directory, const std::string& status) {
    facts_.status = status;
    facts_.ended = utc_now();
    write_comparison_manifest(directory, experiment_, plan_, facts_);
  }

  int stopped(RunDirectory& directory) {
    const bool requeue = SignalScope::wish() == StopWish::kRequeue;
    settle(directory, requeue ? "checkpointed" : "interrupted");
    const std::size_t left = plan_.remaining();
    if (session_.json) {
      session_.out.write(JsonLine()
                             .add("kind", "comparison")
                             .add("status", facts_.status)
                             .add("cells", facts_.cells)
                             .add("cells_left", left)
                             .add("directory", directory.path().string())
                             .str() +
                         "\n");
    }
    session_.err.write(
        fmt::format("stopped with {} of {} cells done; go on with --out {} --resume\n",
                    facts_.cells - left, facts_.cells, directory.path().string()));
    return static_cast<int>(requeue ? ExitCode::kCheckpointedRequeue : ExitCode::kInterrupted);
  }

  report::Comparison judged(RetimedFor use) {
    report::Comparison comparison = report::compare_variants(
        rules_of(experiment_, plan_, baseline_, data_(baseline_).entropy, arguments_.quick),
        plan_.results());
    if (runs_simulated(baseline_)) {
      comparison.other_links = times_on_links(
          comparison, experiment_.settings().links,
          [&](std::size_t variant) { return plan_.config_of_run(variant); }, use);
    }
    comparison.notes.insert(comparison.notes.end(), weaknesses_.begin(), weaknesses_.end());
    return comparison;
  }

  void tell(const report::Comparison& comparison, const std::string& json) {
    session_.out.write(session_.json
                           ? json + "\n"
                           : render_comparison(comparison, setting_of(baseline_), session_.out));
  }

  int tell_reference(RunDirectory& directory) {
    std::vector<report::CellResult> runs;
    for (const report::ComparedVariant& variant : plan_.results()) {
      runs.insert(runs.end(), variant.runs.begin(), variant.runs.end());
    }
    const ReferenceResult result = against_reference(arguments_.against, reference_, runs);
    const std::string json = reference_json(result);
    directory.write_json("summary.json", json);
    session_.out.write(session_.json ? json + "\n" : render_reference(result, session_.out));
    return static_cast<int>(result.normal() ? ExitCode::kOk : ExitCode::kRunFailed);
  }

  int verdict_on_requirements(const report::Comparison& comparison) {
    std::vector<std::string> missed;
    for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
      const std::string& name = comparison.variants[v].name;
      const report::ToTarget& way = comparison.results[v].to_target;
      const bool asked = std::find(required_.begin(), required_.end(), name) != required_.end();
      if (asked && (!comparison.target || way.reached < way.runs)) {
        missed.push_back(fmt::format("{} ({}/{} runs)", name, way.reached, way.runs));
      }
    }
    if (missed.empty()) {
      return 0;
    }
    session_.err.write(fmt::format("isthmus: {} --require: the target was missed by {}\n",
                                   session_.err.paint(Style::kBad, "error:"), join(missed)));
    return static_cast<int>(ExitCode::kTargetMissed);
  }

  const CompareArguments& arguments_;
  Session& session_;
  SystemStorage storage_;
  Experiment experiment_;
  CellInputs inputs_;
  ComparisonPlan plan_;
  std::vector<std::string> required_;
  Config baseline_;  // the run file of its first seed
  std::uint64_t memory_bytes_ = 0;
  int widest_ = 1;
  std::map<std::size_t, CheckpointRoom> checkpoints_;  // by variant, where they are kept
  DataFactsOf data_;
  std::vector<std::string> weaknesses_;
  std::vector<report::CellResult> reference_;  // runs of --against
  ComparisonFacts facts_;
};

}  // namespace

int command_compare(const CompareArguments& arguments, Session& session) {
  return CompareCommand(arguments, session).run();
}

}  // namespace isthmus::app
