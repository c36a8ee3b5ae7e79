// SPDX-License-Identifier: Apache-2.0
// One run of a trainer of your own: its checkpoints, its folder, its lines, the other sites of the
// run, from a TOML file. The program's built-in trainer is a caller of the same code.
//
// A `Trainer` is one worker's training; a `TrainerFactory` makes it on the worker's thread.
// `run_session` runs all workers in this process, in real or virtual time, or one site whose peers
// are other processes. The caller owns all arguments, and they outlive the call. Two calls may run
// at the same time on two threads, in folders of their own; the log is all that they share.
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

/// What somebody asks of a run while the run goes on. The caller of a run owns the wishes, and one
/// object serves one run at a time. Every method may be called from any thread; the four methods
/// that ask may be called from a signal handler too. Workers read the wishes between inner steps.
class Wishes {
 public:
  /// All sites stop after one step that they agree on, and write a checkpoint: exit code 130.
  /// RETURNS: what had been asked for before.
  StopWish interrupt() { return stop_.exchange(StopWish::kInterrupt); }
  /// The same with exit code 85, by which a scheduler starts the run again. An interrupt that was
  /// asked for before stays.
  void requeue() {
    StopWish none = StopWish::kNone;
    stop_.compare_exchange_strong(none, StopWish::kRequeue);
  }
  /// All sites write a checkpoint after a step that they agree on, and train on.
  void checkpoint() { checkpoint_ = true; }
  /// This site leaves and the other sites train on. A run whose sites are all needed refuses.
  void leave() {
    leave_ = true;
    leaving_ = true;
  }

  [[nodiscard]] StopWish stop() const { return stop_; }
  /// Whether the site has been asked to leave, and the run has not refused.
  [[nodiscard]] bool leaving() const { return leaving_; }

  // For the run that obeys:
  /// Whether a checkpoint was asked for since the last call.
  [[nodiscard]] bool take_checkpoint() { return checkpoint_.exchange(false); }
  /// Whether the site was asked to leave since the last call.
  [[nodiscard]] bool take_leave() { return leave_.exchange(false); }
  void refuse_leave() { leaving_ = false; }
  /// Forgets the wish to stop, and a wish to leave that no run has seen.
  void forget() {
    stop_ = StopWish::kNone;
    leave_ = false;
  }

 private:
  std::atomic<StopWish> stop_{StopWish::kNone};
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> leave_{false};    // no run has seen it yet
  std::atomic<bool> leaving_{false};  // no run has refused it
  static_assert(std::atomic<StopWish>::is_always_lock_free);
  static_assert(std::atomic<bool>::is_always_lock_free);
};

/// How many tokens the files `before` were, where the data of a run begin with these very tokens.
/// RETURNS: or one clause on why they do not.
using TokensOfBeginning =
    std::function<Expected<std::int64_t, std::string>(std::span<const DataFile> before)>;

/// What a trainer says of itself, equal at all workers of a process and known before one is made.
/// Sites compare the facts before the first step, and a checkpoint keeps them.
struct TrainerFacts {
  /// Names, shapes, layers and element ids in canonical order, as InnerLoop::parameters() has them;
  /// `values` may be empty. All sites of a run have the same parameters, whatever their trainers.
  std::vector<Parameter> parameters;
  /// Which trainer this is. "own" is the built-in one, which `run_session` refuses: give your
  /// trainer a name of its own. Sites of one run may have unlike kinds.
  std::string kind = "own";
  /// Values that steer the training, as (name, value). Sites whose trainers are of one kind must
  /// have the same; sites of unlike kinds do not compare them. A checkpoint resumes under the same
  /// kind and values alone.
  std::vector<std::pair<std::string, std::string>> common = {};
  /// As Trainer::evaluation_parts; 0: the trainer evaluates nothing. Equal at all sites, whatever
  /// their trainers, since each evaluates its share of the parts.
  std::int64_t evaluation_parts = 0;
  /// Of data.mix: each is named in the lines of evaluations, with its own loss. Empty: one source.
  std::vector<EvaluationSource> evaluation_sources = {};
  double step_flops = 0;       // floating-point operations of one worker's inner step; 0: not known
  std::string model = "{}";    // for the manifest: a JSON object
  std::string device = "cpu";  // for the manifest: what computes the inner loops of this process
  std::vector<DataFile> data = {};  // files that are trained on, equal at sites of one kind
  TokensOfBeginning tokens_of_beginning = {};  // empty: the data of this trainer cannot grow
  std::vector<std::pair<std::string, std::string>> files =
      {};  // (name, content), written beside each checkpoint's model

  [[nodiscard]] std::int64_t values() const {
    std::int64_t sum = 0;
    for (const Parameter& each : parameters) sum += each.elements.size();
    return sum;
  }
};

/// One worker's training. Made, used and destroyed by the worker's thread; `train_alone` is the one
/// exception.
class Trainer {
 public:
  virtual ~Trainer() = default;

  /// The loop has the initial parameters when the trainer has been made: equal at all sites where
  /// net.start is "same"; with "first", the default of such a trainer, those of the first site
  /// count, and are written into the others' loops.
  [[nodiscard]] virtual InnerLoop& loop() = 0;
  /// Puts the loop back to step 0, as far as the trainer itself keeps what the loop was then; a
  /// checkpoint fills in the rest. With train.trainer = "external" a run lays its start down as a
  /// checkpoint of step 0, which is whole: such a trainer needs no function of its own.
  virtual void restart() {}
  /// The data have been appended to since the state that the loop has just loaded; called before
  /// its next step. What the loop reads from then on follows from this, and is saved with the loop.
  virtual void data_grew([[maybe_unused]] const DataGrowth& growth) {}

  /// `strategy` is about to take a step, and may be read while the loop's train_step is called;
  /// null: that step is over, or another one follows that is not the strategy's. Borrowed.
  virtual void stepping([[maybe_unused]] const OuterStrategy* strategy) {}

  /// Parts of a whole evaluation, numbered from 0 on. Nothing: the run evaluates nothing.
  [[nodiscard]] virtual std::optional<std::int64_t> evaluation_parts() const {
    return std::nullopt;
  }
  /// Losses of `source`'s parameters over these parts. `through`: the loop on the run's clock.
  [[nodiscard]] virtual std::vector<EvalPart> evaluate(
      [[maybe_unused]] InnerLoop& through, [[maybe_unused]] const ParameterSource& source,
      [[maybe_unused]] std::span<const std::int64_t> parts) {
    return {};
  }

  /// The method's strategy over `through`, the loop on the run's clock. A trainer may keep the
  /// strategy's state elsewhere than in memory: on a device, or at the ranks of its site.
  /// THROWS: ConfigError, as make_outer_strategy.
  [[nodiscard]] virtual std::unique_ptr<OuterStrategy> make_strategy(const std::string& method,
                                                                     const OuterOptions& options,
                                                                     InnerLoop& through,
                                                                     Exchange& exchange) {
    return make_outer_strategy(method, options, through, exchange);
  }

  /// Whether the trainer takes steps before `train_step` asks for them, as far as `may_train_until`
  /// lets it.
  [[nodiscard]] virtual bool trains_ahead() const { return false; }
  /// Before the next train_step, of step t: the steps after t, up to `last`, will be asked for too,
  /// one after another, and nobody reads or changes the loop's parameters before the end of step
  /// `last`. The trainer may take them as soon as step t is over, and then gives the results as it
  /// is asked for them. Called for trainers that train ahead; real time alone.
  virtual void may_train_until([[maybe_unused]] StepIndex last) {}
  /// The run fails: waits for the end of the steps that `may_train_until` has let it take, and
  /// forgets the results of those that nobody has asked for.
  virtual void stop_training_ahead() {}

  /// Whether the loop queues work that goes on after `train_step` has returned. Queued work must be
  /// done before the worker waits for other workers, which may be waiting for that work.
  [[nodiscard]] virtual bool works_ahead() const { return false; }
  /// The run is over for this worker, in order.
  virtual void finish() {}
  /// Once: the run's session has ended, and the trainer's steps go on, on the calling thread.
  /// Nothing that was borrowed from the session is used any more. THROWS: ConfigError, SystemError.
  virtual void train_alone() {}
};

/// Makes the trainer of worker `context.rank` of `context.workers`, on the worker's thread.
using TrainerFactory = std::function<std::unique_ptr<Trainer>(const WorkerContext& context)>;

/// One key of a run that goes on, changed from here on.
struct RunChange {
  std::string key;  // "train.steps"
  /// The configuration with the changes before this one alone; none where these fit together with
  /// later changes only.
  std::optional<Config> before;
};

/// How and where a run takes place.
struct RunArguments {
  /// Name of the [[site]] that this process is. Empty: all workers of the run are in this process.
  std::string site = {};
  std::string listen = {};              // HOST:PORT that the site binds; empty: its address's port
  std::filesystem::path key_file = {};  // secret key; empty: keys/SITE.key beside the file
  bool simulated = false;               // in virtual time over the declared links; no `site` then
  std::filesystem::path out = {};       // the run's folder; empty: run.out, or a new one in runs/
  /// never | auto (the newest checkpoint of `out`, if any) | PATH of a checkpoint or run.
  std::string resume = "never";
  bool force = false;                  // a run that is in `out` is removed
  std::vector<std::string> argv = {};  // for the manifest
  /// Of a run that goes on (`resume` is not "never"): how its configuration came about, as
  /// load_changed_run says. The manifest tells the changes.
  std::vector<RunChange> changes = {};
};

/// How a run ended.
struct RunEnd {
  ExitCode exit_code = ExitCode::kOk;  // kInterrupted and kCheckpointedRequeue after a wish to stop
  std::string status = "ok";           // as in manifest.json
  std::filesystem::path directory;
  std::int64_t steps = 0;  // taken, by all sessions of the run
  double clock_s = 0;      // on the run's clock, real or virtual
};

/// Hears how a run goes. Called by the thread that called `run_session`, but for `step`.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// The run waits for other sites, or tries to come back to them: a sentence for people.
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
/// The same of a run that goes on with `changes` ("train.steps=400"), in order, over the
/// `overrides` that it was begun with. What of a run may change is checked as the run begins: steps
/// and H with the restrictions of `train --change`; the rates of the steps are the trainer's own.
/// THROWS: as load_config.
[[nodiscard]] ChangedRun load_changed_run(const std::filesystem::path& file,
                                          const std::vector<std::string>& overrides,
                                          const std::vector<std::string>& changes);

/// Runs to the last step, or to a checkpoint after a wish to stop. A site that the others have lost
/// comes back to them by itself. Blocks; installs no signal handler, and reads no environment.
/// `listener` may be null. DETERMINISM: the same configuration and trainers give the same bits on
/// threads, as processes and in virtual time.
/// REQUIRES: net.transport is not "mpi", and hub.site is not this site.
/// THROWS: ConfigError and SystemError before anything is written; Error as the parts do afterwards
/// (RunError, PeerError), once the folder says how the run ended; what a trainer throws.
[[nodiscard]] RunEnd run_session(const Config& config, const RunArguments& arguments,
                                 const TrainerFacts& facts, const TrainerFactory& make,
                                 Wishes& wishes, RunListener* listener = nullptr);

}  // namespace isthmus
