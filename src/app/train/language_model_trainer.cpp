// SPDX-License-Identifier: Apache-2.0
#include "app/train/language_model_trainer.h"

#include <utility>

#include "app/train/config_to_options.h"
#include "app/train/device_choice.h"
#include "app/train/offload.h"
#include "config/schema/device_request.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "data/tokenize/conversation_data.h"
#include "inner/mesh/training_step.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/resident_values.h"
#include "outer/place/outer_placement.h"

namespace isthmus::app {
namespace {

/// Virtual time knows nothing of a disk.
std::unique_ptr<StateMemory> files_of(const LanguageModelTrainer::Setup& setup, WorkerId rank,
                                      const Runtime& runtime) {
  const bool real = !runtime.simulated();
  return make_state_memory(setup.config, rank, real ? setup.events : nullptr,
                           real ? &runtime.clock() : nullptr);
}

}  // namespace

LanguageModelTrainer::LanguageModelTrainer(const Setup& setup, WorkerId rank,
                                           const Runtime& runtime)
    : config_(setup.config),
      plan_(setup.plan),
      rank_(rank),
      simulated_(runtime.simulated()),
      storage_(&setup.storage),
      eval_tokens_(setup.eval_tokens),
      on_batch_(setup.on_batch),
      data_(&setup.data),
      rules_(setup.data.rules()),
      files_(files_of(setup, rank, runtime)),
      scope_(files_.get()),
      source_(std::make_unique<BatchSource>(*data_, batch_plan(config_), rank.value())),
      model_(make_inner_loop(plan_.device, rank, loop_options(), [this](StepIndex t) {
        if (on_batch_) on_batch_(t);
        return source_->at(t.value() - 1);
      })) {
  load_initial_weights();
}

LanguageModelTrainer::~LanguageModelTrainer() = default;

void LanguageModelTrainer::load_initial_weights() {
  app::load_initial_weights(*storage_, config_, *model_);
}

void LanguageModelTrainer::restart() {
  load_initial_weights();
  model_->reset_optimizer();
}

LanguageModelOptions LanguageModelTrainer::loop_options() {
  LanguageModelOptions options = language_model_options(config_, plan_, rank_);
  options.batch_state = {
      .save = [this](StateWriter& writer) { save_history(source_->history(), writer); },
      .load = [this](StateReader& reader) { read_by(load_history(reader, data_->tokens())); }};
  return options;
}

void LanguageModelTrainer::read_by(DataHistory history) {
  source_ =
      std::make_unique<BatchSource>(*data_, batch_plan(config_), rank_.value(), std::move(history));
}

void LanguageModelTrainer::data_grew(const DataGrowth& growth) {
  DataHistory history = source_->history();
  history.push_back(growth);
  read_by(std::move(history));
}

std::int64_t LanguageModelTrainer::eval_tokens() const {
  const DataHistory& history = source_->history();
  return history.empty() ? eval_tokens_ : app::eval_tokens(config_, *data_, history);
}

ValidationSource LanguageModelTrainer::windows() const {
  return {*data_, validation_plan(config_, eval_tokens()), source_->history()};
}

std::optional<std::int64_t> LanguageModelTrainer::evaluation_parts() const {
  if (eval_tokens() < 0) return std::nullopt;
  return app::evaluation_parts(windows());
}

std::vector<EvalPart> LanguageModelTrainer::evaluate(InnerLoop& through,
                                                     const ParameterSource& source,
                                                     std::span<const std::int64_t> parts) {
  ValidationSource windows = this->windows();
  std::vector<EvalPart> evaluated;
  for (const std::int64_t k : parts) {
    const EvaluationWindows part = windows_of_part(windows, k);
    const TokenBatch batch = windows.at(part.first, part.count);
    const std::int64_t tokens = counted_targets(batch);
    const double mean = tokens == 0 ? 0 : through.loss(batch, source);
    evaluated.push_back(
        {.batch = k, .loss_sum = mean * static_cast<double>(tokens), .tokens = tokens});
  }
  return evaluated;
}

std::unique_ptr<OuterStrategy> LanguageModelTrainer::make_strategy(const std::string& method,
                                                                   const OuterOptions& options,
                                                                   InnerLoop& through,
                                                                   Exchange& exchange) {
  OuterOptions own = options;
  own.spsa.threads = plan_.threads_per_worker;
  auto* const values = dynamic_cast<cuda::ResidentValues*>(model_.get());
  if (outer_is_on_device(config_) && !simulated_) {
    ISTHMUS_CHECK(values != nullptr, config_.outer_placement);
    return outer::make_outer_strategy_on_device(method, own, through, exchange, *values);
  }
  if (values != nullptr && !simulated_) {
    return outer::make_outer_strategy_beside_device(method, own, through, exchange, *values);
  }
  if (outer_is_on_ranks(config_) && plan_.processes != nullptr) {
    auto* const loop = dynamic_cast<LanguageModelLoop*>(model_.get());
    ISTHMUS_CHECK(loop != nullptr, config_.outer_placement);
    return outer::make_outer_strategy_on_ranks(
        method, own, through, exchange,
        [loop](const RankService& part) { loop->call_ranks(part); });
  }
  return make_outer_strategy(method, own, through, exchange);
}

bool LanguageModelTrainer::works_ahead() const {
  return dynamic_cast<const cuda::ResidentValues*>(model_.get()) != nullptr;
}

void LanguageModelTrainer::finish() {
  if (!files_) return;
  const StateTraffic traffic = files_->traffic();
  log_info("worker {}: {} read from the files of train.offload, {} written, {} waited for them",
           rank_.value(), human_bytes(static_cast<double>(traffic.read_bytes)),
           human_bytes(static_cast<double>(traffic.written_bytes)), human_time(traffic.wait_s));
}

void LanguageModelTrainer::train_alone() {
  if (plan_.device.on_cuda()) cuda::use_device(plan_.device.of(rank_).ordinal);
  const SystemStorage storage;
  own_data_.emplace(open_data(storage, config_, rules_));
  DataHistory history = source_->history();
  data_ = &*own_data_;
  read_by(std::move(history));
}

}  // namespace isthmus::app
