// SPDX-License-Identifier: Apache-2.0
// What a run knows of the training that goes on inside a worker: its inner loop, how it begins
// anew, how it is evaluated, where its outer state lies. The run knows no model, no data and no
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/data_file.h"
#include "core/base/events.h"
#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"
#include "record/run_events.h"

namespace isthmus::app {

/// How many tokens the files `before` were, where the data of a run begin with these very tokens.
/// RETURNS: or one clause on why not.
using TokensOfBeginning =
    std::function<Expected<std::int64_t, std::string>(std::span<const DataFile> before)>;

/// What the workers of a run train, alike at all of them and known before one is made.
struct TrainerFacts {
  std::vector<Parameter> parameters;  // names, shapes and element ids; no values
  Digest128 layout;                   // of names, shapes and order
  std::string kind = "own";
  double step_flops = 0;       // floating-point operations of one worker's inner step
  std::string model = "{}";    // for the manifest: a JSON object
  std::string device = "cpu";  // for the manifest: what computes the inner loops of this process
  std::vector<DataFile> data;  // it trains on these
  TokensOfBeginning tokens_of_beginning = {};                   // empty: its data cannot grow
  std::vector<std::pair<std::string, std::string>> files = {};  // beside each checkpoint's model

  [[nodiscard]] std::int64_t values() const {
    std::int64_t sum = 0;
    for (const Parameter& each : parameters) sum += each.elements.size();
    return sum;
  }
};

/// One worker's training. Made, used and destroyed by the worker's task, but for `train_alone`.
class Trainer {
 public:
  virtual ~Trainer() = default;

  /// With the initial parameters when the trainer has been made.
  [[nodiscard]] virtual InnerLoop& loop() = 0;
  /// The loop is as at step 0, as far as the trainer itself keeps what it was then; a checkpoint
  /// fills in the rest.
  virtual void restart() = 0;

  /// The data have been appended to since the state that the loop has just loaded; before its next
  /// step. What it reads from then on follows from this, and is saved with the loop.
  virtual void data_grew(const DataGrowth& growth) { static_cast<void>(growth); }

  /// Parts that a whole evaluation has, by number from 0 on; nothing: the run evaluates nothing.
  [[nodiscard]] virtual std::optional<std::int64_t> evaluation_parts() const = 0;
  /// Losses of `source`'s parameters over these parts. `through`: the loop on the run's clock.
  [[nodiscard]] virtual std::vector<EvalPart> evaluate(InnerLoop& through,
                                                       const ParameterSource& source,
                                                       std::span<const std::int64_t> parts) = 0;

  /// The method's strategy over `through`, the loop on the run's clock. A trainer may keep the
  /// strategy's state elsewhere than in memory: on a device, or at the ranks of its site.
  /// THROWS: ConfigError, as make_outer_strategy.
  [[nodiscard]] virtual std::unique_ptr<OuterStrategy> make_strategy(const std::string& method,
                                                                     const OuterOptions& options,
                                                                     InnerLoop& through,
                                                                     Exchange& exchange) {
    return make_outer_strategy(method, options, through, exchange);
  }

  /// Whether the loop queues work that goes on after `train_step` has returned. What is queued must
  /// be done before the worker waits for others, who may be waiting for it.
  [[nodiscard]] virtual bool works_ahead() const { return false; }
  /// The run is over for this worker, in order.
  virtual void finish() {}
  /// Once: the run's session has ended, and its steps go on, on the calling task. Nothing that was
  /// borrowed from the session is used any more. THROWS: ConfigError, SystemError.
  virtual void train_alone() {}
};

/// Makes the trainer of worker `context.rank`, on the worker's task. `events`: of the run, may be
/// null; borrowed until `train_alone`.
using MakeTrainer =
    std::function<std::unique_ptr<Trainer>(const WorkerContext& context, EventSink* events)>;

}  // namespace isthmus::app
