// SPDX-License-Identifier: Apache-2.0
// The built-in trainer: a language model on the run's own data, on this process's device or mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/train/training_plan.h"
#include "core/base/events.h"
#include "core/base/storage.h"
#include "core/state/state_memory.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "inner/loop/language_model_loop.h"
#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "session/run/trainer.h"

namespace isthmus::app {

class LanguageModelTrainer final : public Trainer {
 public:
  /// All borrowed: `config` for the trainer's life, the rest until `train_alone`.
  struct Setup {
    const Config& config;
    const TrainingPlan& plan;  // copied
    const Storage& storage;
    const Dataset& data;
    std::int64_t eval_tokens = 0;  // 0: the whole validation part; < 0: none
    EventSink* events = nullptr;   // reads and writes of train.offload; may be null
    /// Called before each batch is read; may be empty.
    std::function<void(StepIndex)> on_batch = {};
  };
  /// For worker `rank`, with the weights of `model.init` if that is given. `runtime`: of the run.
  /// THROWS: ConfigError, SystemError as the parts do.
  LanguageModelTrainer(const Setup& setup, WorkerId rank, const Runtime& runtime);
  ~LanguageModelTrainer() override;
  LanguageModelTrainer(const LanguageModelTrainer&) = delete;
  LanguageModelTrainer& operator=(const LanguageModelTrainer&) = delete;

  [[nodiscard]] InnerLoop& loop() override { return *model_; }
  void restart() override;
  void data_grew(const DataGrowth& growth) override;
  [[nodiscard]] std::optional<std::int64_t> evaluation_parts() const override;
  [[nodiscard]] std::vector<EvalPart> evaluate(InnerLoop& through, const ParameterSource& source,
                                               std::span<const std::int64_t> parts) override;
  /// The state is on the weights' device, or on the site's ranks, if outer.placement says so; never
  /// in virtual time, and threads share one memory.
  [[nodiscard]] std::unique_ptr<OuterStrategy> make_strategy(const std::string& method,
                                                             const OuterOptions& options,
                                                             InnerLoop& through,
                                                             Exchange& exchange) override;
  /// True on a device: work is still queued when `train_step` returns.
  [[nodiscard]] bool works_ahead() const override;
  /// Logs the reads and writes of train.offload.
  void finish() override;
  /// Opens the data again: the session's data are gone.
  void train_alone() override;

 private:
  [[nodiscard]] std::int64_t eval_tokens() const;
  [[nodiscard]] ValidationSource windows() const;
  void load_initial_weights();
  [[nodiscard]] LanguageModelOptions loop_options();
  void read_by(DataHistory history);

  const Config& config_;
  const TrainingPlan plan_;
  const WorkerId rank_;
  const bool simulated_;
  const Storage* const storage_;
  const std::int64_t eval_tokens_;
  const std::function<void(StepIndex)> on_batch_;
  const Dataset* data_;
  const ReadingRules rules_;                  // with which the data were opened
  const std::unique_ptr<StateMemory> files_;  // for the members below, if the run has files
  const StateMemoryScope scope_;
  std::optional<Dataset> own_data_;  // once it trains alone
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<InnerLoop> model_;
};

}  // namespace isthmus::app
