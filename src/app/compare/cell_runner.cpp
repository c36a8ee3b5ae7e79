// SPDX-License-Identifier: Apache-2.0
#include "app/compare/cell_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>

#include "app/common/signals.h"
#include "app/observe/progress.h"
#include "app/train/run_estimate.h"
#include "app/train/training.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"
#include "record/build_info.h"
#include "sim/world.h"

namespace isthmus::app {
namespace {

constexpr TimePoint kNever = TimePoint::max();
/// In a finished cell's folder: its line of cells.jsonl, so that the files' owner is known.
constexpr const char* kCellFile = "cell.json";

/// A run's outcome as a line of cells.jsonl.
report::CellResult result_of(const Cell& cell, const std::string& variant) {
  report::CellResult result{.key = cell.key,
                            .configuration = cell.configuration,
                            .stage = cell.stage,
                            .variant = variant,
                            .method = cell.config.method,
                            .seed = cell.seed,
                            .simulated = cell.simulated,
                            .directory = cell.directory};
  for (const Setting& value : cell.point) {
    result.tuned.emplace_back(value.key, value.value);
  }
  result.version = program_version();
  return result;
}

void take_outcome(const TrainingOutcome& outcome, report::CellResult& result) {
  const RunTotals& totals = outcome.totals;
  result.steps = totals.steps;
  result.tokens = totals.tokens;
  result.parameters = outcome.parameters;
  result.wall_s = totals.wall_s;
  double computed = 0;
  for (const double seconds : totals.compute_s) {
    computed += seconds;
  }
  const double available = totals.clock_s * static_cast<double>(totals.compute_s.size());
  result.utilisation = available > 0 ? computed / available : 0;
  for (const EvalRecord& eval : outcome.evals) {
    result.evals.push_back(
        {.step = eval.step,
         .loss = eval.loss,
         .clock_s = outcome.simulated ? eval.clock_s : std::numeric_limits<double>::quiet_NaN(),
         .payload_bytes = static_cast<double>(eval.payload_bytes),
         .wire_bytes = static_cast<double>(eval.wire_bytes)});
  }
}

class Runner {
 public:
  Runner(ComparisonPlan& plan, CellStore& store, const Experiment& experiment, CellInputs& inputs,
         const RunnerOptions& options, Session& session)
      : plan_(plan),
        store_(store),
        experiment_(experiment),
        inputs_(inputs),
        options_(options),
        session_(session),
        progress_(session.err, session.progress),
        queue_(runtime_.make_wait_queue()),
        total_(plan.total()),
        total_cost_(plan.total_cost()) {}

  RunnerOutcome run() {
    std::vector<std::unique_ptr<Task>> tasks;
    const int jobs = static_cast<int>(std::min(static_cast<std::size_t>(options_.jobs), total_));
    for (int i = 0; i < jobs; ++i) {
      tasks.push_back(runtime_.spawn(fmt::format("cells-{}", i), [this] { work(); }));
    }
    for (const auto& task : tasks) {
      task->join();
    }
    progress_.finish();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    outcome_.stopped = !plan_.done();
    return outcome_;
  }

 private:
  struct Running {
    std::string name;
    std::string text;
    double cost = 0;
    std::atomic<double> fraction = 0;  // written by the cell's threads
  };

  /// One task: cell after cell, to the first failure of any task.
  void work() {
    std::string directory;
    try {
      while (const auto taken = take()) {
        directory = taken->first.directory;
        run_cell(taken->first, taken->second);
      }
    } catch (...) {  // an exception while a cell is taken counts too: others may wait for that
                     // cell's result
      queue_->update([&] {
        failure_ = failure_ ? failure_ : std::current_exception();
        running_.erase(directory);
      });
    }
  }

  /// The next cell and its share of the cores; nothing when there is no more to do here. Cells that
  /// the store knows are finished on the way.
  std::optional<std::pair<Cell, CellThreads>> take() {
    options_.lock.check();
    std::optional<Cell> cell;
    bool over = false;
    const auto ready = [&] {
      if (cell || over) {
        return true;
      }
      over = failure_ || SignalScope::wish() != StopWish::kNone;
      while (!over && !cell) {
        cell = plan_.next();
        over = plan_.done();
        if (!cell) {
          break;
        }
        if (const report::CellResult* known = store_.find(cell->key); known != nullptr) {
          plan_.finish(*cell, as_this(*cell, *known));
          ++outcome_.reused;
          cell.reset();
          over = plan_.done();
        }
      }
      return over || cell;
    };
    queue_->wait(ready, kNever);
    if (!cell) {
      queue_->update([] {});  // threads that still wait look again
      return std::nullopt;
    }
    CellThreads threads;
    queue_->update([&] {
      const std::string& variant = experiment_.variants()[cell->variant].name;
      Running& running = running_[cell->directory];
      running.name = fmt::format("{} {}", variant, stage_text(*cell));
      running.text = point_text(*cell);
      running.cost = cell->cost;
      const std::size_t together =
          std::min(static_cast<std::size_t>(options_.jobs), plan_.remaining());
      threads = cell_threads(options_.cores, together, cell->config.workers());
    });
    return std::pair(*std::move(cell), threads);
  }

  void run_cell(const Cell& cell, const CellThreads& threads) {
    report::CellResult result = result_of(cell, experiment_.variants()[cell.variant].name);
    const bool whole =
        options_.program.given() ? run_program(cell, result) : run_trainer(cell, threads, result);
    if (!whole) {  // stopped by a signal: no result
      queue_->update([&] { running_.erase(cell.directory); });
      return;
    }
    result.finished = utc_now();
    options_.lock.check();
    SystemStorage storage;
    write_atomically(storage, options_.folder / result.directory / kCellFile,
                     report::cell_line(result) + "\n");
    store_.add(result);
    queue_->update([&] {
      plan_.finish(cell, result);
      running_.erase(cell.directory);
      ++outcome_.run;
    });
  }

  /// The built-in trainer's run. RETURNS: false when a signal has stopped it.
  bool run_trainer(Cell cell, const CellThreads& threads, report::CellResult& result) {
    cell.config.train.threads = threads.threads;
    cell.config.train.pin = false;  // cells beside one another would pin the same cores
    if (cell.stage == report::CellStage::kTune) cell.config.log = {};  // trials are no runs to show
    const bool first_seed = cell.stage == report::CellStage::kSeed && cell.number == 0;
    const OpenData* data = nullptr;
    queue_->update([&] { data = &inputs_.data(cell.config); });
    const TrainingRequest request{.command = "compare",
                                  .out = options_.folder / cell.directory,
                                  .force = true,  // over the files of an unfinished cell
                                  .simulated = cell.simulated,
                                  .side_by_side = SideBySide{.data = data,
                                                             .slots = threads.slots,
                                                             .checkpoint = keeps_checkpoint(cell),
                                                             .events = first_seed,
                                                             .on_step = progress_of(cell)}};
    result.data_tokens = data->data.train_tokens();
    result.data_entropy = data->data.entropy_rate().value_or(0);
    try {
      const TrainingOutcome outcome = run_training(cell.config, request, session_);
      if (outcome.exit_code != ExitCode::kOk) return false;
      take_outcome(outcome, result);
      report::fail_without_loss(result);
    } catch (const DeadlockError&) {
      throw;
    } catch (const RunError& error) {
      result.status = report::CellStatus::kFailed;
      result.cause = error.what();
    }
    return true;
  }

  /// The run of the user's program. RETURNS: false when a signal has stopped it.
  bool run_program(const Cell& cell, report::CellResult& result) {
    const bool whole = run_program_cell({.program = options_.program,
                                         .config = cell.config,
                                         .simulated = cell.simulated,
                                         .folder = options_.folder / cell.directory,
                                         // The same for all: its sums may depend on the number.
                                         .threads = std::max(1, options_.cores / options_.jobs),
                                         .checkpoint = keeps_checkpoint(cell),
                                         .on_step = progress_of(cell)},
                                        result);
    if (whole && result.status == report::CellStatus::kOk) report::fail_without_loss(result);
    return whole;
  }

  [[nodiscard]] bool keeps_checkpoint(const Cell& cell) const {
    return options_.checkpoints && cell.stage == report::CellStage::kSeed;
  }

  /// The callback by which the cell's run reports its steps.
  std::function<void(std::int64_t)> progress_of(const Cell& cell) {
    std::atomic<double>* fraction = nullptr;
    queue_->update([&] { fraction = &running_[cell.directory].fraction; });
    return
        [this, fraction, steps = static_cast<double>(total_steps(cell.config))](std::int64_t step) {
          options_.lock.check();
          *fraction = static_cast<double>(step) / steps;
          show();
        };
  }

  static std::string key_in(const std::filesystem::path& file) {
    const SystemStorage storage;
    const auto cell = storage.kind(file) == FileKind::kFile
                          ? report::read_cell(read_text(storage, file))
                          : std::nullopt;
    return cell ? cell->key : "";
  }

  /// An earlier result as this cell's: cells that compute the same share one. Its folder is named
  /// only while the files in it are still those of this result.
  [[nodiscard]] report::CellResult as_this(const Cell& cell, report::CellResult known) const {
    const report::CellResult own = result_of(cell, experiment_.variants()[cell.variant].name);
    known.variant = own.variant;
    known.tuned = own.tuned;
    const std::string elsewhere = known.directory;
    known.directory.clear();
    for (const std::string& directory : {elsewhere, cell.directory}) {
      if (key_in(options_.folder / directory / kCellFile) == cell.key) {
        known.directory = directory;
      }
    }
    return known;
  }

  static std::string stage_text(const Cell& cell) {
    return cell.stage == report::CellStage::kTune ? fmt::format("trial {}", cell.number + 1)
                                                  : fmt::format("seed {}", cell.seed);
  }
  static std::string point_text(const Cell& cell) {
    std::string text;
    for (const Setting& value : cell.point) {
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", value.key, value.value);
    }
    return text;
  }

  /// Any cell's thread.
  void show() {
    if (!progress_.due()) {
      return;
    }
    ProgressUpdate update{.activity = "cell"};
    queue_->update([&] {
      double left = plan_.remaining_cost();
      for (const auto& [directory, running] : running_) {
        left -= running.cost * running.fraction;
        update.lanes.push_back({running.name, running.fraction, running.text});
      }
      update.done = static_cast<std::int64_t>(total_ - plan_.remaining());
      update.total = static_cast<std::int64_t>(total_);
      update.fraction = std::clamp(1 - left / total_cost_, 0.0, 1.0);
    });
    progress_.update(update);
  }

  ComparisonPlan& plan_;
  CellStore& store_;
  const Experiment& experiment_;
  CellInputs& inputs_;  // under the queue's lock
  const RunnerOptions& options_;
  Session& session_;
  Progress progress_;
  SystemRuntime runtime_;
  std::unique_ptr<WaitQueue> queue_;  // protects the members below, and the plan
  const std::size_t total_;
  const double total_cost_;
  std::map<std::string, Running> running_;  // by directory
  RunnerOutcome outcome_;
  std::exception_ptr failure_;
};

}  // namespace

RunnerOutcome run_cells(ComparisonPlan& plan, CellStore& store, const Experiment& experiment,
                        CellInputs& inputs, const RunnerOptions& options, Session& session) {
  return Runner(plan, store, experiment, inputs, options, session).run();
}

JobLimit job_limit(int cores, int widest, std::uint64_t memory_bytes, std::uint64_t available_bytes,
                   int asked) {
  if (asked > 0) {
    return {asked, "--jobs"};
  }
  constexpr double kShare = 0.8;  // of the free memory
  const int by_cores = std::max(1, cores / std::max(1, widest));
  const double fit = kShare * static_cast<double>(available_bytes) /
                     static_cast<double>(std::max<std::uint64_t>(1, memory_bytes));
  if (available_bytes == 0 || fit >= by_cores) {
    return {by_cores, fmt::format("{} core{}", cores, cores == 1 ? "" : "s")};
  }
  return {std::max(1, static_cast<int>(fit)),
          fmt::format("memory: a cell takes {} of {} free",
                      human_bytes(static_cast<double>(memory_bytes)),
                      human_bytes(static_cast<double>(available_bytes)))};
}

CellThreads cell_threads(int cores, std::size_t together, int workers) {
  const int share = std::max(1, cores / static_cast<int>(std::max<std::size_t>(1, together)));
  const int each = std::max(1, share / workers);
  return {.threads = std::max(share, 1), .slots = std::max(1, share / each)};
}

}  // namespace isthmus::app
