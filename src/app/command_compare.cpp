// SPDX-License-Identifier: Apache-2.0
// `compare FILE`: variants over a base, tuned alike, trained on the same seeds, told apart or not.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/build_info.h"
#include "app/cell_runner.h"
#include "app/commands.h"
#include "app/comparison_checks.h"
#include "app/comparison_estimate.h"
#include "app/comparison_files.h"
#include "app/comparison_links.h"
#include "app/comparison_page.h"
#include "app/comparison_text.h"
#include "app/signals.h"
#include "app/training.h"
#include "core/log.h"
#include "core/suggest.h"
#include "kernels/isa.h"

namespace isthmus::app {
namespace {

report::ComparisonRules rules_of(const Experiment& experiment, const ComparisonPlan& plan,
                                 const Config& baseline, CellInputs& inputs, bool quick) {
  const ExperimentSettings& settings = experiment.settings();
  report::ComparisonRules rules{
      .name = baseline.run.name,
      .baseline = plan.baseline(),
      .confidence = settings.confidence,
      .margin = settings.margin,
      .floor = inputs.data(baseline).data.entropy_rate().value_or(0),
      .target = settings.target_value,
      .target_relative_to = plan.baseline(),
      .target_factor = settings.target_factor,
      .budget_steps = settings.budget_steps,
      .budget_s = std::chrono::duration<double>(settings.budget_time).count(),
      .quick = quick};
  for (std::size_t m = 0; m < plan.variants().size(); ++m) {
    if (experiment.variants()[plan.variants()[m]].name == settings.target_relative_to) {
      rules.target_relative_to = m;
    }
  }
  return rules;
}

/// Names given to --require; "all" stands for every one.
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

/// One comparison, from its checks to its verdict.
class Command {
 public:
  Command(const CompareArguments& arguments, Session& session)
      : arguments_(arguments),
        session_(session),
        experiment_(Experiment::load(arguments.config, arguments.overrides, schema_context())),
        inputs_(storage_),
        plan_(experiment_, {.quick = arguments.quick,
                            .only = arguments.only,
                            .inputs = [this](const Config& config) { return inputs_.of(config); }}),
        required_(required(arguments, experiment_, plan_)) {}

  int run() {
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
    RunDirectory directory(storage_, {.out = out(),
                                      .name = baseline_.run.name,
                                      .run_id = facts_.run_id,
                                      .existing = arguments_.resume  ? ExistingRun::kResume
                                                  : arguments_.force ? ExistingRun::kForce
                                                                     : ExistingRun::kRefuse});
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
    return train(directory, store);
  }

 private:
  [[nodiscard]] std::filesystem::path out() const {
    return arguments_.out.empty() ? baseline_.run.out : arguments_.out;
  }

  /// Everything that can be wrong, before anything is written.
  void check() {
    if (arguments_.resume && arguments_.force) {
      throw UsageError(
          "--resume together with --force: one keeps the cells, the other removes them");
    }
    std::string kernels;
    for (const Cell& cell : plan_.outline()) {
      const bool first = cell.number == 0;
      if (!first) {
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
      if (cell.stage == report::CellStage::kSeed) {
        const RunEstimate run = estimate_run(cell.config, cell.simulated);
        memory_bytes_ = std::max(memory_bytes_, run.memory_bytes);
        widest_ = std::max(widest_, cell.simulated ? 1 : cell.config.workers());
        if (cell.variant == plan_.variants()[plan_.baseline()]) {
          baseline_ = cell.config;
        }
      }
    }
    kernels::use_isa(kernels::isa_named(kernels));
    weaknesses_ = weaknesses_of(experiment_, plan_, inputs_);
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

  int train(RunDirectory& directory, CellStore& store) {
    const SignalScope signals;
    RunnerOutcome outcome;
    try {
      outcome = run_cells(plan_, store, experiment_, inputs_,
                          {.folder = directory.path(),
                           .cores = cores(),
                           .jobs = jobs().jobs,
                           .checkpoints = experiment_.settings().checkpoints},
                          session_);
    } catch (const std::exception&) {
      settle(directory, "failed");
      throw;
    }
    facts_.run = outcome.run;
    facts_.reused = outcome.reused;
    facts_.cells = plan_.total();
    if (outcome.stopped) {
      return stopped(directory);
    }
    settle(directory, "ok");
    return tell(directory);
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

  int tell(RunDirectory& directory) {
    report::Comparison comparison = report::compare_variants(
        rules_of(experiment_, plan_, baseline_, inputs_, arguments_.quick), plan_.results());
    if (runs_simulated(baseline_)) {
      comparison.other_links =
          times_on_links(comparison, experiment_.settings().links,
                         [&](std::size_t variant) { return plan_.config_of_run(variant); });
    }
    comparison.notes.insert(comparison.notes.end(), weaknesses_.begin(), weaknesses_.end());
    const std::string json = comparison_json(comparison, facts_, directory.path());
    directory.write_json("summary.json", json);
    const std::filesystem::path page = directory.path() / "report.html";
    write_comparison_page(
        directory.path(), page, experiment_.settings().links,
        {.generated = utc_now(), .command = "isthmus report " + directory.path().string()});
    if (session_.json) {
      session_.out.write(json + "\n");
    } else {
      session_.out.write(
          render_comparison(comparison, setting_of(baseline_), session_.out) +
          fmt::format("files   {} (the page: report.html)\n", directory.path().string()));
    }
    return verdict_on_requirements(comparison);
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
  std::vector<std::string> weaknesses_;
  ComparisonFacts facts_;
};

}  // namespace

int command_compare(const CompareArguments& arguments, Session& session) {
  return Command(arguments, session).run();
}

}  // namespace isthmus::app
