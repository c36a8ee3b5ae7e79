// SPDX-License-Identifier: Apache-2.0
// Runs the caller's own trainer from a TOML file: workers, checkpoints, the run folder, metrics,
// the other sites. The program's built-in trainer uses the same code.
//
// A `Trainer` is one worker's training; a `TrainerFactory` makes it on the worker's thread.
// `run_session` runs all workers in this process, in real or virtual time, or one site whose peers
// are other processes. The caller owns all arguments, which must outlive the call. Two calls may
// run at the same time on two threads, in different folders; they share only the log.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/data_file.h"
#include "isthmus/errors.h"
#include "isthmus/expected.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"

namespace isthmus {

/// Why a run ends before its last step.
enum class StopWish { kNone, kInterrupt, kRequeue };

/// Requests to a running run: stop, checkpoint, leave. The caller of the run owns the object, and
/// one object serves one run at a time. Every method may be called from any thread; the four
/// methods that make a request may also be called from a signal handler. Workers read the requests
/// between inner steps.
class Wishes {
 public:
  /// All sites stop after one step that they agree on, and write a checkpoint: exit code 130.
  /// RETURNS: the previous request.
  StopWish interrupt() { return stop_.exchange(StopWish::kInterrupt); }
  /// As `interrupt`, with exit code 85, after which a scheduler starts the run again. An earlier
  /// interrupt stays in force.
  void requeue() {
    StopWish none = StopWish::kNone;
    stop_.compare_exchange_strong(none, StopWish::kRequeue);
  }
  /// All sites write a checkpoint after a step that they agree on, and continue to train.
  void checkpoint() { checkpoint_ = true; }
  /// This site leaves, and the other sites continue. A run that needs all its sites refuses.
  void leave() {
    leave_ = true;
    leaving_ = true;
  }

  [[nodiscard]] StopWish stop() const { return stop_; }
  /// True if the site was asked to leave and the run has not refused.
  [[nodiscard]] bool leaving() const { return leaving_; }

  // For the run that serves the requests:
  /// True if a checkpoint was requested since the last call.
  [[nodiscard]] bool take_checkpoint() { return checkpoint_.exchange(false); }
  /// True if a leave was requested since the last call.
  [[nodiscard]] bool take_leave() { return leave_.exchange(false); }
  void refuse_leave() { leaving_ = false; }
  /// Forgets all requests, read or not, so that the next run begins without any. Not during a run.
  void forget() {
    stop_ = StopWish::kNone;
    checkpoint_ = false;
    leave_ = false;
    leaving_ = false;
  }

 private:
  std::atomic<StopWish> stop_{StopWish::kNone};
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> leave_{false};    // requested, and no run has read it yet
  std::atomic<bool> leaving_{false};  // requested, and no run has refused it
  static_assert(std::atomic<StopWish>::is_always_lock_free);
  static_assert(std::atomic<bool>::is_always_lock_free);
};

/// Checks that a run's data begin with the tokens of the files `before`. RETURNS: the number of
/// these tokens, or one clause on why the data do not begin with them.
using TokensOfBeginning =
    std::function<Expected<std::int64_t, std::string>(std::span<const DataFile> before)>;

/// Facts about a trainer, equal at all workers of a process and known before a trainer is made.
/// Sites compare the facts before the first step, and a checkpoint keeps them.
struct TrainerFacts {
  /// Names, shapes, layers and element ids in canonical order, as InnerLoop::parameters() has them;
  /// `values` may be empty. All sites of a run have the same parameters, whatever their trainers.
  std::vector<Parameter> parameters;
  /// Kind of the trainer. "own" is the built-in trainer, which `run_session` refuses: choose
  /// another name. Sites of one run may have different kinds.
  std::string kind = "own";
  /// Values that steer the training, as (name, value). Sites with trainers of the same kind must
  /// have equal values; sites of different kinds do not compare them. A checkpoint resumes only
  /// under the same kind and values.
  std::vector<std::pair<std::string, std::string>> common = {};
  /// As Trainer::evaluation_parts; 0: the trainer evaluates nothing. Equal at all sites for every
  /// kind of trainer, since each site evaluates its share of the parts.
  std::int64_t evaluation_parts = 0;
  /// Sources of data.mix: evaluation lines name each source with its loss. Empty: one source.
  std::vector<EvaluationSource> evaluation_sources = {};
  double step_flops = 0;       // floating-point operations of one worker's inner step; 0: unknown
  std::string model = "{}";    // for the manifest: a JSON object
  std::string device = "cpu";  // for the manifest: device of this process's inner loops
  std::vector<DataFile> data = {};             // training files, equal at sites of one kind
  TokensOfBeginning tokens_of_beginning = {};  // empty: the data of this trainer cannot grow
  std::vector<std::pair<std::string, std::string>> files =
      {};  // (name, content), written next to each checkpoint's model

  [[nodiscard]] std::int64_t values() const {
    std::int64_t sum = 0;
    for (const Parameter& each : parameters) sum += each.elements.size();
    return sum;
  }
};

/// One worker's training. The worker's thread makes, uses and destroys it; only `train_alone` runs
/// on another thread.
class Trainer {
 public:
  virtual ~Trainer() = default;

  /// The loop holds the initial parameters once the trainer has been made. With net.start = "same"
  /// they must be equal at all sites. With "first", the default for external trainers, the first
  /// site's parameters are written into the loops of all sites.
  [[nodiscard]] virtual InnerLoop& loop() = 0;
  /// Resets the loop to step 0, as far as the trainer keeps that state itself; a checkpoint
  /// restores the rest. With train.trainer = "external" a run writes its start as a complete
  /// checkpoint of step 0, so such a trainer need not override this function.
  virtual void restart() {}
  /// Called before the next step when data were appended since the state that the loop has just
  /// loaded. `growth` determines what the loop reads from then on, and is saved with the loop.
  virtual void data_grew([[maybe_unused]] const DataGrowth& growth) {}

  /// Called before `strategy` takes a step; `strategy` may be read during the loop's train_step.
  /// Null: that step is over, or the next step is not the strategy's. Borrowed.
  virtual void stepping([[maybe_unused]] const OuterStrategy* strategy) {}

  /// Number of parts of a whole evaluation, numbered from 0. Absent: the run evaluates nothing.
  [[nodiscard]] virtual std::optional<std::int64_t> evaluation_parts() const {
    return std::nullopt;
  }
  /// Losses over these parts with the parameters of `source`. `through`: the loop on the run's
  /// clock.
  [[nodiscard]] virtual std::vector<EvalPart> evaluate(
      [[maybe_unused]] InnerLoop& through, [[maybe_unused]] const ParameterSource& source,
      [[maybe_unused]] std::span<const std::int64_t> parts) {
    return {};
  }

  /// Makes the method's strategy over `through`, the loop on the run's clock. A trainer may
  /// override this to keep the strategy's state outside host memory: on a device, or at the ranks
  /// of its site.
  /// THROWS: ConfigError, as make_outer_strategy.
  [[nodiscard]] virtual std::unique_ptr<OuterStrategy> make_strategy(const std::string& method,
                                                                     const OuterOptions& options,
                                                                     InnerLoop& through,
                                                                     Exchange& exchange) {
    return make_outer_strategy(method, options, through, exchange);
  }

  /// True if the trainer takes steps before `train_step` asks for them, within the bound of
  /// `may_train_until`.
  [[nodiscard]] virtual bool trains_ahead() const { return false; }
  /// Called before train_step of step t: the steps after t up to `last` will be requested one after
  /// another, and the loop's parameters are neither read nor changed from outside before the end of
  /// step `last`. The trainer may take these steps as soon as step t is over, and returns their
  /// results on request. Called only for trainers that train ahead, in real time.
  virtual void may_train_until([[maybe_unused]] StepIndex last) {}
  /// Called when the run fails: waits for the end of the steps that `may_train_until` allowed, and
  /// drops results that were not requested.
  virtual void stop_training_ahead() {}

  /// True if the loop queues work that continues after `train_step` has returned. Queued work must
  /// be done before the worker waits for other workers, which may be waiting for that work.
  [[nodiscard]] virtual bool works_ahead() const { return false; }
  /// Called when the run has ended for this worker without an error.
  virtual void finish() {}
  /// Called at most once, after the session has ended: the trainer continues its steps on the
  /// calling thread. Nothing that was borrowed from the session may be used. THROWS: ConfigError,
  /// SystemError.
  virtual void train_alone() {}
};

/// Makes the trainer of worker `context.rank` of `context.workers`, on the worker's thread.
using TrainerFactory = std::function<std::unique_ptr<Trainer>(const WorkerContext& context)>;

/// One key that a resumed run changes.
struct RunChange {
  std::string key;  // "train.steps"
  /// The configuration with only the changes before this one; absent if these are valid only
  /// together with later changes.
  std::optional<Config> before;
};

/// How and where a run takes place.
struct RunArguments {
  /// Name of the [[site]] of this process. Empty: all workers of the run are in this process.
  std::string site = {};
  std::string listen = {};              // HOST:PORT that the site binds; empty: its address's port
  std::filesystem::path key_file = {};  // secret key; empty: keys/SITE.key beside the config file
  bool simulated = false;               // virtual time over the declared links; then `site` is
                                        // empty
  std::filesystem::path out = {};       // the run's folder; empty: run.out, or a new one in runs/
  /// never | auto (the newest checkpoint of `out`, if any) | PATH of a checkpoint or run.
  std::string resume = "never";
  bool force = false;                  // true: removes a run that is in `out`
  std::vector<std::string> argv = {};  // command line, for the manifest
  /// For a resumed run (`resume` is not "never"): the changes of its configuration, as
  /// load_changed_run returns them. The manifest records them.
  std::vector<RunChange> changes = {};
};

/// How a run ended.
struct RunEnd {
  ExitCode exit_code = ExitCode::kOk;  // kInterrupted and kCheckpointedRequeue after a request to
                                       // stop
  std::string status = "ok";           // as in manifest.json
  std::filesystem::path directory;
  std::int64_t steps = 0;  // steps taken by all sessions of the run
  double clock_s = 0;      // seconds on the run's clock, real or virtual
};

/// Receives a run's progress. All calls except `step` come from the thread that called
/// `run_session`.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// The run waits for other sites, or tries to reconnect to them; `what` is a sentence for people.
  virtual void waiting([[maybe_unused]] const std::string& what) {}
  /// All workers have taken this step. Called by a worker's thread, one call at a time.
  virtual void step([[maybe_unused]] StepIndex t) {}
};

/// `load_config` with this library's methods and codecs, for run_session. train.trainer =
/// "external" in the file says that [data] and train.global_batch are not needed.
/// THROWS: as load_config.
[[nodiscard]] Config load_run(const std::filesystem::path& file,
                              const std::vector<std::string>& overrides = {});

struct ChangedRun {
  Config config;  // with all changes
  std::vector<RunChange> changes;
};
/// The same for a run that is resumed with `changes` ("train.steps=400"), applied in order over the
/// `overrides` that it was started with. The start of the run checks which keys may change: steps
/// and H with the restrictions of `train --change`; the learning rates of steps are the trainer's
/// responsibility.
/// THROWS: as load_config.
[[nodiscard]] ChangedRun load_changed_run(const std::filesystem::path& file,
                                          const std::vector<std::string>& overrides,
                                          const std::vector<std::string>& changes);

/// Runs to the last step, or to a checkpoint after a request to stop. A site that was lost
/// reconnects to the others by itself. Blocks; installs no signal handler, and reads no environment
/// variable. `listener` may be null. DETERMINISM: the same configuration and trainers give the same
/// bits on threads, as processes and in virtual time.
/// REQUIRES: net.transport is not "mpi", and hub.site is not this site.
/// THROWS: ConfigError and SystemError before anything is written; later Error of the parts
/// (RunError, PeerError) and any exception of a trainer, once the folder records how the run ended.
[[nodiscard]] RunEnd run_session(const Config& config, const RunArguments& arguments,
                                 const TrainerFacts& facts, const TrainerFactory& make,
                                 Wishes& wishes, RunListener* listener = nullptr);

}  // namespace isthmus
