// SPDX-License-Identifier: Apache-2.0
// A trainer whose work is done on a caller's thread. The run's worker posts a request (Asked) and
// waits; the caller's thread takes it, does it and answers. So all code of the caller runs on the
// caller's own threads, and none of it on the run's.
//
// Waking a thread on a sleeping core costs up to 50 us, which is noticeable with two hand-overs a
// step. So if the run does not need the parameters during the next steps, it says so with the first
// of them, and the caller's thread continues to the next step without waiting for the run's thread,
// which takes the results, in order, about 20 ms later.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c/handed_ranks.h"
#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/session.h"
#include "isthmus/state.h"

namespace isthmus::c {

/// THROWS: ConfigError for keys that no trainer of a caller can follow.
void check_handed(const Config& config);

using RanksPart = std::function<void(Communicator&)>;

/// A worker's request to the caller's thread.
struct Asked {
  enum class Kind {
    kTrain,
    kSave,
    kLoad,
    kRestart,
    kEvaluate,
    kRead,
    kWrote,
    kGradients,
    kApply,
    kReplay,
    kRanks
  };
  Kind kind = Kind::kTrain;
  StepIndex step{0};
  std::vector<std::int64_t> parts = {};  // kEvaluate
  StateWriter* writer = nullptr;         // kSave
  StateReader* reader = nullptr;         // kLoad
  bool wrote = false;                    // the run has written parameters since the last kTrain
  CanonicalRange elements = {};          // kRead, kWrote
  const OuterStrategy* outer = nullptr;  // kTrain, if the step is one of the strategy's
  StepIndex until{0};               // kTrain: later steps up to this one follow without a request
  const RanksPart* part = nullptr;  // kRanks: what all ranks of the site do together
};

struct Answer {
  InnerStep step;
  double learning_rate = 0;
  std::vector<EvalPart> losses;
};

/// The meeting point of one worker of a run and one thread of the caller. Thread-safe.
class Channel {
 public:
  explicit Channel(SystemRuntime& runtime) : runtime_(runtime), queue_(runtime.make_wait_queue()) {}

  /// The run's side. Blocks until the answer, which for a step may exist already. THROWS: RunError
  /// once the caller has failed or left.
  [[nodiscard]] Answer ask(const Asked& asked);
  /// Blocks until the caller has taken its steps ahead, which other workers may be taking with it,
  /// and drops the answers to steps that were not requested.
  void stop_ahead();
  /// The run is over; `failure` is null if it ended in order.
  void finish(const std::exception_ptr& failure);

  /// The result of `next`.
  enum class Next { kNothing, kAsked, kEnd };
  /// The caller's side. Blocks until a request or the end of the run, until `deadline`. THROWS: the
  /// run's failure; ConfigError when the last request was not answered.
  [[nodiscard]] Next next(TimePoint deadline, Asked& asked);
  /// THROWS: ConfigError unless a request of one of these kinds is open.
  void answer(Answer answer, std::span<const Asked::Kind> of);
  /// Runs `work` with the taken, unanswered request, whose writer or reader stays valid until it
  /// returns. For a step taken ahead: once the run has reached it. THROWS: ConfigError when no
  /// request is open.
  void with_open(const std::function<void(const Asked&)>& work);
  /// Runs the part of the open kRanks request, once. THROWS: ConfigError for another request and
  /// for a second time; what the part throws, with which the run fails too.
  void run_part(const HandedRanks& ranks);
  /// The same with a part that is not a request of its own: a failure is also the run's.
  void run_part(const HandedRanks& ranks, const RanksPart& part);
  /// Whether the caller's thread is inside of `with_open`, so that the run's thread stands still.
  [[nodiscard]] bool caller_inside();
  /// Present and later requests fail with this text.
  void fail(const std::string& text);

 private:
  SystemRuntime& runtime_;
  std::unique_ptr<WaitQueue> queue_;
  // Under the lock:
  /// Whether it is a step that the caller already has, or takes ahead.
  [[nodiscard]] bool is_ahead(const Asked& asked);
  /// The answer to the run's request, once there is one.
  [[nodiscard]] std::optional<Answer> take_answer(const Asked& asked);
  /// Sets open_ to the caller's next work, if there is any.
  [[nodiscard]] Next take();

  // Under the lock of queue_:
  bool busy_ = false;           // a request is being posted
  std::optional<Asked> asked_;  // and not answered
  bool taken_ = false;          // by the caller
  std::optional<Asked> open_;   // the caller's current work; only its thread changes it
  bool part_begun_ = false;     // of open_, where that is kRanks; likewise
  std::optional<Answer> answer_;
  std::deque<std::pair<StepIndex, Answer>> trained_;  // results that the run has not taken yet
  StepIndex given_{0};                                // the last step that the caller was given
  StepIndex until_{0};     // last step to take ahead; less than given_: none
  bool stopping_ = false;  // the run requests no step that the caller takes ahead
  bool over_ = false;
  std::exception_ptr failure_;
  std::optional<std::string> caller_failed_;
  int using_ = 0;  // calls of the caller that use the request's pointers
};

/// The InnerLoop of a worker: parameters are the caller's memory; all other calls become requests.
class HandedLoop final : public InnerLoop {
 public:
  /// `copies`: the spans of `parameters` are copies, and the caller is asked at each use.
  /// `gradients`: the caller's memory for them, empty if the run does not request gradients.
  HandedLoop(Channel& channel, std::vector<Parameter> parameters, bool copies,
             std::vector<std::span<float>> gradients)
      : channel_(channel),
        parameters_(std::move(parameters)),
        copies_(copies),
        gradients_(std::move(gradients)) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override;
  void wrote_values(CanonicalRange elements) override;
  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double learning_rate(StepIndex) const override { return learning_rate_; }
  void reset_optimizer() override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  /// The strategy to which the next steps belong; null: none. Borrowed.
  void stepping(const OuterStrategy* strategy) { strategy_ = strategy; }
  /// As Trainer::may_train_until.
  void may_train_until(StepIndex last) { until_ = last; }

 private:
  Channel& channel_;
  std::vector<Parameter> parameters_;
  const bool copies_;
  const std::vector<std::span<float>> gradients_;
  const OuterStrategy* strategy_ = nullptr;
  StepIndex until_{0};  // of the next step
  StepIndex given_{0};  // step whose gradients the caller has given
  bool wrote_ = true;
  double learning_rate_ = 0;
};

class HandedTrainer final : public Trainer {
 public:
  /// `evaluation_parts`: 0 for a run without evaluations.
  /// `ranks`: all ranks of the site, which then hold the outer state; null: this process holds it.
  HandedTrainer(Channel& channel, std::vector<Parameter> parameters, bool copies,
                std::vector<std::span<float>> gradients, std::int64_t evaluation_parts,
                const HandedRanks* ranks)
      : channel_(channel),
        ranks_(ranks),
        loop_(channel, std::move(parameters), copies, std::move(gradients)),
        parts_(evaluation_parts) {}
  [[nodiscard]] InnerLoop& loop() override { return loop_; }
  void restart() override { loop_.reset_optimizer(); }
  void stepping(const OuterStrategy* strategy) override { loop_.stepping(strategy); }
  [[nodiscard]] bool trains_ahead() const override { return true; }
  void may_train_until(StepIndex last) override { loop_.may_train_until(last); }
  void stop_training_ahead() override { channel_.stop_ahead(); }
  [[nodiscard]] std::optional<std::int64_t> evaluation_parts() const override;
  /// Puts the source's values in place of the loop's own, which are restored afterwards.
  [[nodiscard]] std::vector<EvalPart> evaluate(InnerLoop& through, const ParameterSource& source,
                                               std::span<const std::int64_t> parts) override;
  [[nodiscard]] std::unique_ptr<OuterStrategy> make_strategy(const std::string& method,
                                                             const OuterOptions& options,
                                                             InnerLoop& through,
                                                             Exchange& exchange) override;

 private:
  Channel& channel_;
  const HandedRanks* const ranks_;
  HandedLoop loop_;
  std::int64_t parts_;
};

}  // namespace isthmus::c
