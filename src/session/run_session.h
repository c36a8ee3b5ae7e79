// SPDX-License-Identifier: Apache-2.0
// One run of any trainer: resuming, meeting the other sites, the run's folder, its workers, its
// end. The run knows no model, data set or device; a `MakeTrainer` provides them. `train`,
// `simulate`, `compare` and `demo` call it through app/train/training.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "record/progress_update.h"
#include "record/run_directory.h"
#include "record/run_lock.h"
#include "record/run_log.h"
#include "record/status_board.h"
#include "session/run/offline_training.h"
#include "session/run/resume.h"
#include "session/run/run_backends.h"
#include "session/run/run_changes.h"
#include "session/run/run_plan.h"
#include "session/run/site_arguments.h"
#include "session/run/trainer.h"
#include "session/site/site_recording.h"
#include "session/site/site_session.h"
#include "session/site/site_start.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

/// Options of a run. References and pointers are borrowed for the life of the RunSession.
struct SessionOptions {
  const Config& config;
  const RunPlan& plan;
  Wishes& wishes;                 // obeyed between steps
  std::string command;            // "train", "simulate", "demo": for the manifest
  std::vector<std::string> argv;  // the same
  std::filesystem::path out;      // the run's folder; empty: a new one below runs/
  /// never | auto (the newest checkpoint of `out`, if any) | PATH of a checkpoint or run. A PATH
  /// within `out` continues the run there; any other PATH starts a new run from that state.
  std::string resume = "never";
  bool force = false;       // an existing run in `out` is removed
  bool simulated = false;   // in virtual time
  bool emulated = false;    // in real time, over the declared links
  int slots = 0;            // simulated: compute regions whose real work runs at once; 0: all cores
  double byte_scale = 1;    // bytes on the modelled link per byte of this model
  bool checkpoints = true;  // written; false: only the workers' agreement is checked
  bool events = true;       // events.jsonl is written
  bool keeps_evals = false;  // RunOutcome::evals has every evaluation, not only the last
  std::string lane = {};     // name of this run in the status block, or empty
  std::vector<LaneProgress> finished_lanes = {};   // runs before this one in the status block
  std::function<void(std::int64_t)> on_step = {};  // after each step of all workers; may be empty
  std::optional<SiteArguments> site =
      std::nullopt;                    // this process is one site; the others are elsewhere
  SiteRecording* recording = nullptr;  // of that site's frames; may be null
  /// The work that this site's worker keeps while it is cut off; may be null.
  PendingDelta* pending_delta = nullptr;
  /// A site that is cut off throws CutOffError and can rejoin; otherwise it throws PeerError.
  bool returns = true;
  /// A run that is complete ends before a trainer is made; false: other sites wait for the trainer.
  bool ends_complete_run = true;
  /// Holds the run's folder from the first session to the last, if a run has several; null: the
  /// session holds it itself.
  std::optional<RunLock>* lock = nullptr;
  std::string lock_remedy = {};  // a further remedy for a folder in use; may be empty
  RunChanges changes = {};       // of a resumed run: how `config` came about
};

/// How a run ended.
struct RunOutcome {
  ExitCode exit_code = ExitCode::kOk;
  std::string status = "ok";  // as in manifest.json
  std::filesystem::path directory;
  bool resumed = false;          // an earlier session took some of the steps
  bool stopped = false;          // by a wish, before the last step
  bool complete_before = false;  // nothing was left to do, and nothing was written
  RunTotals totals;
  std::vector<EvalRecord> evals = {};  // this session's, as SessionOptions::keeps_evals says
  std::optional<LateStatus> late = std::nullopt;  // this site's, if rounds have a deadline
};

/// Callbacks of a run; all are called by the task that called `run`.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// A view of the run's progress until `ending`; null: none.
  [[nodiscard]] virtual ProgressView* progress() = 0;
  /// A board that receives the content of the run's lines; null: none.
  [[nodiscard]] virtual StatusBoard* status() = 0;
  /// The run waits for other sites: a sentence for people.
  virtual void waiting(const std::string& what) = 0;
  /// The folder and its manifest are written, the first line is not. `log` is valid until `ending`.
  virtual void begun(const RunDirectory& directory, const Manifest& manifest, MetricsLog& log) = 0;
  /// RETURNS: the real length of a worker's step, for a simulated run that declares none; zero if
  /// one is declared.
  [[nodiscard]] virtual Duration measure_step() = 0;
  /// All workers have ended without an error; the run's summary can be written. `world`, `result`:
  /// of this session. An exception fails the run.
  virtual void finished(RunDirectory& directory, const RunOutcome& outcome, const RunWorld& world,
                        const WorldResult& result) = 0;
  /// Nothing is shown any more: the run's last line is written next.
  virtual void ending() = 0;
};

/// The other sites continue without this one, or wait for site 0: this site can rejoin with `resume
/// = "auto"`.
class CutOffError : public PeerError {
 public:
  CutOffError(const std::string& text, std::filesystem::path directory)
      : PeerError(text), directory_(std::move(directory)) {}
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
};

/// Place of this process's worker in `config.sites`, if the process is one site of several. THROWS:
/// ConfigError, as site_of.
[[nodiscard]] std::optional<WorkerId> own_worker(const Config& config,
                                                 const std::optional<SiteArguments>& site);

class RunSession {
 public:
  /// Finds the checkpoint to continue from, in a folder that this session holds from then on.
  /// Writes nothing else. THROWS: ConfigError, SystemError naming what is missing or damaged, or
  /// the process that holds the folder.
  explicit RunSession(SessionOptions options);
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  /// The data files with which the run began, if an earlier run continues or may continue: a site
  /// agrees on that later with the other sites. THROWS: SystemError.
  [[nodiscard]] std::optional<std::vector<DataFile>> begun_with() const;
  /// Checks for files that --force must not remove. THROWS: ConfigError naming the key and the
  /// file.
  void check_force() const;
  /// Takes the facts of the trainer, and checks them against those in the checkpoint. Call before
  /// `run`. THROWS: ConfigError naming the keys or files that differ.
  void take_facts(TrainerFacts facts);

  /// Runs to the last step, or to a checkpoint after a signal. Call once. `make`: called on each
  /// worker's task. THROWS: errors of the parts, after the manifest's status and the "end" line are
  /// written; CutOffError.
  RunOutcome run(const MakeTrainer& make, RunObserver& observer);

 private:
  [[nodiscard]] ExistingRun existing() const {
    return continues_       ? ExistingRun::kResume
           : options_.force ? ExistingRun::kForce
                            : ExistingRun::kRefuse;
  }
  /// Takes the folder. THROWS: SystemError naming the process that holds it.
  void hold(const std::filesystem::path& folder);
  [[nodiscard]] std::optional<Checkpoint> checkpoint_to_resume();
  [[nodiscard]] ResumedRun resumed_run() const;
  void check_to_resume();
  /// Meets the other sites, before anything is written.
  void join_sites(RunObserver& observer);
  [[nodiscard]] SiteFacts site_facts() const;
  [[nodiscard]] Manifest manifest() const;
  [[nodiscard]] std::vector<ConfigChange> changes() const;
  /// Changes before `step`, from the manifest of the run that continues in `out`.
  [[nodiscard]] std::vector<ConfigChange> changes_before(std::int64_t step) const;
  /// Whether the run that continues in `out` has taken its last step and has a summary.
  [[nodiscard]] bool is_complete() const;
  /// The outcome of a complete run; writes nothing.
  [[nodiscard]] RunOutcome completed_before();
  /// Takes the run's folder and writes the run's description. RETURNS: the folder.
  [[nodiscard]] RunDirectory begin_folder(const Manifest& manifest);
  /// Prepares the folder for the step that the run continues from. RETURNS: that step.
  std::int64_t prepare(RunDirectory& directory, RunTotals& totals);
  void train(RunDirectory& directory, const Manifest& manifest, MetricsLog& log,
             const MakeTrainer& make, RunObserver& observer, RunTotals& totals,
             RunOutcome& outcome);
  /// Writes the run's last line and its status. After a failure, write errors are only logged: the
  /// first failure counts. Writes nothing into a folder that was lost.
  void close(RunDirectory& directory, Manifest& manifest, MetricsLog& log,
             const RunOutcome& outcome, const std::string& cause);
  /// THROWS: `failure`, or CutOffError if the other sites continue without this one.
  [[noreturn]] void fail(const std::exception_ptr& failure, const std::filesystem::path& folder);
  [[nodiscard]] std::unique_ptr<RetainedResults> retained_results(const RunDirectory& directory);

  const SessionOptions options_;
  const Config& config_;
  SystemStorage storage_;
  const std::string digest_;  // of the configuration
  SystemRuntime runtime_;
  std::atomic<bool> failed_{false};
  const DiskPatience patience_;
  std::optional<RunLock> own_lock_;
  std::optional<RunLock>& lock_;
  std::optional<Checkpoint> resume_;
  const bool continues_;  // the run in `out` continues; otherwise a new one begins
  TrainerFacts facts_;
  ResumeFindings findings_;  // of resume_
  Digest128 layout_;         // of names, shapes and order
  std::optional<SiteSession> site_;
  SiteStart start_;  // agreed with the other sites; empty if all workers are here
};

}  // namespace isthmus::app
