// SPDX-License-Identifier: Apache-2.0
// The built-in trainer of low-rank adapters (LoRA, inner/model/lora.h) as an InnerLoop: the model
// is frozen and a worker trains only the adapters. Its parameters, gradients and moments are the
// adapters', so exchanges and checkpoints contain nothing else. Owns the frozen weights, the
// adapters' state, activations and its threads. One rank, on the CPU. One thread drives it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_cost.h"
#include "inner/model/frozen_weights.h"
#include "inner/model/lora.h"
#include "inner/model/model.h"
#include "inner/model/optimizer.h"
#include "inner/model/schedule.h"
#include "isthmus/inner_loop.h"
#include "kernels/thread_team.h"

namespace isthmus {

/// Bytes of such a loop. `layout`: the adapters'. REQUIRES: options.model.lora.rank > 0.
[[nodiscard]] MemoryEstimate lora_memory(const ModelLayout& layout,
                                         const LanguageModelOptions& options);

class LoraLoop final : public InnerLoop {
 public:
  /// The adapters begin as in the paper: A is drawn by the seed, B is zero. REQUIRES:
  /// options.model.lora.rank > 0. THROWS: ConfigError when sizes do not fit together or the options
  /// ask for a mesh of ranks, SystemError when memory does not suffice.
  LoraLoop(const LanguageModelOptions& options, BatchProvider batches);

  /// The frozen model's tensors, without values, in canonical order.
  [[nodiscard]] std::span<const Parameter> base() const { return base_parameters_; }
  /// values: (n,) of base()[tensor] from `first` on; copied. All must be stored before the first
  /// pass. REQUIRES: whole tiles (isthmus/codec.h), or up to the tensor's end.
  void store_base(std::size_t tensor, std::int64_t first, std::span<const float> values);

  /// Resets the adapters to their initial values.
  void restart();

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  /// As LanguageModelLoop's. THROWS: RunError naming the step when loss or gradient norm is not
  /// finite; adapters and moments are then those before it.
  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override { return schedule_.at(t); }
  [[nodiscard]] AdamSettings adam_settings() const override;
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  [[nodiscard]] std::size_t held_bytes() const;

 private:
  [[nodiscard]] std::span<float> of(std::vector<float>& flat, std::size_t parameter) const;
  [[nodiscard]] LossSum sum_losses(const TokenBatch& batch, const ParameterSource& source);

  LanguageModelOptions options_;
  ModelLayout base_layout_, layout_;
  BatchProvider batches_;
  LearningRateSchedule schedule_;
  kernels::ThreadTeam team_;
  FrozenWeights base_;
  std::vector<float> values_, gradients_, source_values_;
  LanguageModel<float> model_;
  Adapters<float> adapters_;
  std::optional<InnerOptimizer> optimizer_;  // none when forward only
  std::vector<Parameter> base_parameters_, parameters_;
};

}  // namespace isthmus
