// SPDX-License-Identifier: Apache-2.0
// One run of any trainer: resuming, meeting the other sites, the run's folder, its workers, its
// end. The run knows no model, no data set and no device; a `MakeTrainer` brings them. `train`,
// `simulate`, `compare` and `demo` are its callers, through app/train/training.h.
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
#include "session/run/lone_training.h"
#include "session/run/resume.h"
#include "session/run/run_changes.h"
#include "session/run/run_plan.h"
#include "session/run/run_worlds.h"
#include "session/run/site_arguments.h"
#include "session/run/trainer.h"
#include "session/site/site_recording.h"
#include "session/site/site_session.h"
#include "session/site/site_start.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

/// What a run is asked for. References and pointers are borrowed for the life of the RunSession.
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
  bool force = false;       // a run that is in `out` is removed
  bool simulated = false;   // in virtual time
  bool emulated = false;    // in real time, over the declared links
  int slots = 0;            // simulated: compute regions whose real work runs at once; 0: all cores
  double byte_scale = 1;    // bytes on the modelled link per byte of this model
  bool checkpoints = true;  // written; otherwise only the workers' agreement is checked
  bool events = true;       // events.jsonl is written
  bool keeps_evals = false;  // RunOutcome::evals has every evaluation, not the last alone
  std::string lane = {};     // name of this run in the status block, or empty
  std::vector<LaneProgress> finished_lanes = {};   // runs before this one in the status block
  std::function<void(std::int64_t)> on_step = {};  // all workers have taken this step; may be empty
  std::optional<SiteArguments> site =
      std::nullopt;                    // this process is one site; the others are elsewhere
  SiteRecording* recording = nullptr;  // of that site's frames; may be null
  /// What this site's worker keeps of its work where it is cut off; may be null.
  InHand* in_hand = nullptr;
  /// A site that is cut off throws CutOffError and can come back; otherwise a PeerError.
  bool returns = true;
  /// A run that is complete ends before a trainer is made; false: others wait for the trainer.
  bool ends_complete_run = true;
  /// Holds the run's folder from its first session to the end of the last, where a run has several;
  /// may be null: the session's own.
  std::optional<RunLock>* lock = nullptr;
  std::string lock_remedy = {};  // what else to do about a folder that is in use; may be empty
  RunChanges changes = {};       // of a run that goes on: how `config` came about
};

/// How a run ended.
struct RunOutcome {
  ExitCode exit_code = ExitCode::kOk;
  std::string status = "ok";  // as in manifest.json
  std::filesystem::path directory;
  bool resumed = false;          // an earlier session took some of the steps
  bool stopped = false;          // by a wish, before the last step
  bool complete_before = false;  // there was nothing left to do, and nothing was written
  RunTotals totals;
  std::vector<EvalRecord> evals = {};  // of this session, as SessionOptions::keeps_evals says
  std::optional<LateStatus> late = std::nullopt;  // of this site, where rounds have a deadline
};

/// What the caller of a run hears and is asked, always by the task that called `run`.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Shows the run's progress until `ending`; null: nothing is shown.
  [[nodiscard]] virtual ProgressView* progress() = 0;
  /// Told what the run's lines say, if somebody watches; null: nobody does.
  [[nodiscard]] virtual StatusBoard* status() = 0;
  /// The run waits for other sites: a sentence for people.
  virtual void waiting(const std::string& what) = 0;
  /// The folder and its manifest are written, the first line is not. `log` lives until `ending`.
  virtual void begun(const RunDirectory& directory, const Manifest& manifest, MetricsLog& log) = 0;
  /// RETURNS: real length of a worker's step in a simulated run that declares none; zero where one
  /// is declared.
  [[nodiscard]] virtual Duration measure_step() = 0;
  /// All workers have ended as they should; the run's summary can be written. `world`, `result`: of
  /// this session. What this throws, the run fails with.
  virtual void finished(RunDirectory& directory, const RunOutcome& outcome, const RunWorld& world,
                        const WorldResult& result) = 0;
  /// Nothing is shown any more: the run's last line comes next.
  virtual void ending() = 0;
};

/// The other sites continue without this one, or wait for the first: this site can come back with
/// `resume = "auto"`.
class CutOffError : public PeerError {
 public:
  CutOffError(const std::string& text, std::filesystem::path directory)
      : PeerError(text), directory_(std::move(directory)) {}
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
};

/// Place of this process's worker in `config.sites`, where the process is one site of several.
/// THROWS: ConfigError, as site_of.
[[nodiscard]] std::optional<WorkerId> own_worker(const Config& config,
                                                 const std::optional<SiteArguments>& site);

class RunSession {
 public:
  /// Finds the checkpoint that the run continues from, in a folder that this session then holds.
  /// Writes nothing else. THROWS: ConfigError, SystemError naming what is missing or damaged, or
  /// who else holds the folder.
  explicit RunSession(SessionOptions options);
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  /// The data files that the run began with, where one that was begun before goes on, or may: of
  /// one site, its sites agree on that later. THROWS: SystemError.
  [[nodiscard]] std::optional<std::vector<DataFile>> begun_with() const;
  /// What --force must not remove. THROWS: ConfigError naming the key and the file.
  void check_force() const;
  /// Takes `facts` of what is trained, and checks that the checkpoint was made of the same. Before
  /// `run`. THROWS: ConfigError naming the keys or files that differ.
  void take_facts(TrainerFacts facts);

  /// Runs to the last step, or to a checkpoint after a signal. Once. `make`: called on each
  /// worker's task. THROWS: Error as the parts do, after the manifest's status and the "end" line
  /// are written; CutOffError.
  RunOutcome run(const MakeTrainer& make, RunObserver& observer);

 private:
  [[nodiscard]] ExistingRun existing() const {
    return continues_       ? ExistingRun::kResume
           : options_.force ? ExistingRun::kForce
                            : ExistingRun::kRefuse;
  }
  /// Takes the folder, unless it is held. THROWS: SystemError naming who else holds it, or that
  /// nothing can be written there; not yet of a run that may be complete.
  void hold(const std::filesystem::path& folder);
  [[nodiscard]] std::optional<Checkpoint> checkpoint_to_resume();
  [[nodiscard]] ResumedRun resumed_run() const;
  void check_to_resume();
  /// Meets the other sites, before anything is written.
  void join_sites(RunObserver& observer);
  [[nodiscard]] SiteFacts site_facts() const;
  [[nodiscard]] Manifest manifest() const;
  [[nodiscard]] std::vector<ConfigChange> changes() const;
  /// As the manifest of the run that continues in `out` has them, those made before `step`.
  [[nodiscard]] std::vector<ConfigChange> changes_before(std::int64_t step) const;
  /// Whether the run in `folder` has ended in order and was summed up.
  [[nodiscard]] bool has_ended(const std::filesystem::path& folder) const;
  /// Whether the run that continues in `out` has taken its last step and was summed up.
  [[nodiscard]] bool is_complete() const;
  /// What a complete run came to; nothing is written.
  [[nodiscard]] RunOutcome completed_before();
  /// Takes the run's folder and writes there what the run is. RETURNS: the folder.
  [[nodiscard]] RunDirectory begin_folder(const Manifest& manifest);
  /// Makes the folder fit the step that the run continues from. RETURNS: that step.
  std::int64_t prepare(RunDirectory& directory, RunTotals& totals);
  void train(RunDirectory& directory, const Manifest& manifest, MetricsLog& log,
             const MakeTrainer& make, RunObserver& observer, RunTotals& totals,
             RunOutcome& outcome);
  /// Writes the run's last line and its status. Of a run that has failed, what cannot be written is
  /// told of only: the first failure counts. Writes nothing into a folder that was lost.
  void close(RunDirectory& directory, Manifest& manifest, MetricsLog& log,
             const RunOutcome& outcome, const std::string& cause);
  /// THROWS: `failure`, or CutOffError where the other sites continue without this one.
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
  std::exception_ptr unwritable_;  // why the folder is not held, of a run that may be complete
  std::optional<RunLock>& lock_;
  std::optional<Checkpoint> resume_;
  const bool continues_;  // the run in `out` goes on; otherwise a new one begins
  TrainerFacts facts_;
  ResumeFindings findings_;  // of resume_
  Digest128 layout_;         // of names, shapes and order
  std::optional<SiteSession> site_;
  SiteStart start_;  // agreed with the other sites; empty where all workers are here
};

}  // namespace isthmus::app
