// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/lora_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "inner/mesh/training_step.h"
#include "inner/model/init.h"
#include "inner/model/samples.h"
#include "isthmus/errors.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {

using Model = LanguageModel<float>;

Model::Purpose lora_purpose(const LanguageModelOptions& options) {
  return options.forward_only ? Model::Purpose::kInference : Model::training(options.recompute);
}

std::int64_t rows_of(const LanguageModelOptions& options) {
  return options.sequences / options.micro_batches * options.context;
}

/// THROWS: ConfigError.
const LanguageModelOptions& checked(const LanguageModelOptions& options) {
  if (options.mesh.ranks() > 1) {
    throw ConfigError(fmt::format(
        "lora.r = {} with a mesh of {} x {} x {} ranks: adapters are trained on one rank a site; "
        "leave tp, pp and dp out, and give the site more threads",
        options.model.lora.rank, options.mesh.tp, options.mesh.pp, options.mesh.dp));
  }
  return checked_options(options);
}

std::size_t count_of(const ModelLayout& layout) {
  return static_cast<std::size_t>(layout.elements());
}

}  // namespace

MemoryEstimate lora_memory(const ModelLayout& layout, const LanguageModelOptions& options) {
  const ModelLayout base(without_lora(layout.shape()));
  const std::int64_t rows = rows_of(options);
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t trained = options.forward_only ? 0 : layout.elements();
  MemoryEstimate memory;
  memory.logits = inference_memory(base, rows, options.bf16).logits;
  memory.parameters =
      layout.elements() * kFloat + FrozenWeights::bytes(base, options.model.lora.base);
  memory.gradients = trained * kFloat;
  memory.moments = trained == 0 ? 0 : InnerOptimizer::moment_values(options.inner, layout) * kFloat;
  memory.activations = Model::arena_bytes(base, rows, lora_purpose(options), options.bf16) +
                       Adapters<float>::scratch_values(layout.shape(), rows) * kFloat;
  return memory;
}

LoraLoop::LoraLoop(const LanguageModelOptions& options, BatchProvider batches) try
    : options_(checked(options)),
      base_layout_(without_lora(model_shape(options.model, options.context))),
      layout_(model_shape(options.model, options.context)),
      batches_(std::move(batches)),
      schedule_(options.inner, options.total_steps),
      team_(options.threads, options.cores),
      base_(base_layout_, team_, options.model.lora.base),
      values_(count_of(layout_)),
      gradients_(options.forward_only ? 0 : count_of(layout_)),
      model_(base_layout_, rows_of(options), lora_purpose(options), options.bf16),
      adapters_(layout_, rows_of(options), values_.data(),
                options.forward_only ? nullptr : gradients_.data()),
      base_parameters_(layout_parameters(base_layout_)),
      parameters_(layout_parameters(layout_, values_)) {
  restart();
  model_.train_adapters(&adapters_);
  if (!options.forward_only) optimizer_.emplace(options.inner, layout_);
} catch (const std::bad_alloc&) {
  const ModelLayout layout(model_shape(options.model, options.context));
  constexpr double kGiB = 1 << 30;
  throw SystemError(fmt::format(
      "model of {} parameters with adapters: no memory for it ({:.1f} GiB a worker): set lora.base "
      "to \"nf4\", train.recompute, or make train.global_batch smaller",
      ModelLayout(without_lora(layout.shape())).elements(),
      static_cast<double>(lora_memory(layout, options).total()) / kGiB));
}

void LoraLoop::store_base(std::size_t tensor, std::int64_t first, std::span<const float> values) {
  base_.store(tensor, first, values);
}

void LoraLoop::restart() { initialize(team_, layout_, options_.seed, values_); }

std::span<float> LoraLoop::of(std::vector<float>& flat, std::size_t parameter) const {
  const CanonicalRange elements = parameters_[parameter].elements;
  return std::span(flat).subspan(static_cast<std::size_t>(elements.begin),
                                 static_cast<std::size_t>(elements.size()));
}

InnerStep LoraLoop::train_step(StepIndex t) {
  InnerStep step = gradients(t, {});
  step.grad_norm = apply_gradients(t);
  return step;
}

InnerStep LoraLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  ISTHMUS_CHECK(!options_.forward_only, t.value());
  const TokenBatch batch = batches_(t);
  ISTHMUS_CHECK(batch.sequences == options_.sequences, batch.sequences, options_.sequences);
  const std::int64_t targets = counted_targets(batch);
  const double factor = mean_factor(batch);
  std::ranges::fill(gradients_, 0.0f);
  adapters_.read_from(values_.data());
  const std::int64_t share = options_.sequences / options_.micro_batches;
  LossSum sum;
  for (std::int64_t part = 0; part < options_.micro_batches; ++part) {
    BackwardOptions<float> backward;
    backward.gradient_scale = factor;
    sum +=
        model_.loss_and_gradients(team_, base_, samples_of(batch, part * share, share), backward);
  }
  const double loss = targets == 0 ? 0 : sum.loss / static_cast<double>(targets);
  check_finite(t, "loss", loss);
  for (std::size_t i = parameters_.size(); on_ready && i-- > 0;) on_ready(i);
  return {.loss = loss, .grad_norm = 0, .tokens = targets};
}

std::span<float> LoraLoop::gradient(std::size_t parameter) { return of(gradients_, parameter); }

double LoraLoop::apply_gradients(StepIndex t) {
  ISTHMUS_CHECK(optimizer_.has_value(), t.value());
  double squares = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::span<const float> g = gradient(i);
    squares += kernels::squared_norm<float>(team_, static_cast<std::int64_t>(g.size()), g.data());
  }
  const double norm = std::sqrt(squares);
  check_finite(t, "gradient norm", norm);
  optimizer_->update(team_, learning_rate(t), kernels::clip_coefficient(options_.inner.clip, norm),
                     values_, gradients_);
  return norm;
}

LossSum LoraLoop::sum_losses(const TokenBatch& batch, const ParameterSource& source) {
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= options_.context, batch.length);
  source_values_.resize(values_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::ranges::copy(source.values(i), of(source_values_, i).begin());
  }
  adapters_.read_from(source_values_.data());
  const std::int64_t at_once = rows_of(options_) / batch.length;
  LossSum sum;
  for (std::int64_t first = 0; first < batch.sequences; first += at_once) {
    const std::int64_t count = std::min(at_once, batch.sequences - first);
    sum += model_.loss(team_, base_, samples_of(batch, first, count));
  }
  ISTHMUS_CHECK(sum.targets > 0);
  return sum;
}

double LoraLoop::loss(const TokenBatch& batch, const ParameterSource& source) {
  return mean_loss(sum_losses(batch, source));
}

InnerStep LoraLoop::train_loss(StepIndex t, SampleShare share, const ParameterSource& source) {
  return step_of_share(batches_(t), share,
                       [&](const TokenBatch& own) { return sum_losses(own, source); });
}

AdamSettings LoraLoop::adam_settings() const { return adam_settings_of(options_.inner); }

AdamMoments LoraLoop::adam_moments(std::size_t parameter) {
  ISTHMUS_CHECK(optimizer_.has_value());
  return optimizer_->adam_moments(parameters_[parameter].elements);
}

void LoraLoop::reset_optimizer() {
  if (optimizer_) optimizer_->reset();
}

void LoraLoop::save(StateWriter& writer) const {
  if (optimizer_) optimizer_->save(writer);
  if (options_.batch_state.save) options_.batch_state.save(writer);
}

void LoraLoop::load(StateReader& reader) {
  if (optimizer_ && is_of_another_trainer(reader)) {
    reset_optimizer();
    return;
  }
  if (optimizer_) optimizer_->load(reader);
  if (options_.batch_state.load) options_.batch_state.load(reader);
}

std::size_t LoraLoop::held_bytes() const {
  const std::size_t values = values_.size() + gradients_.size() + source_values_.size();
  return values * sizeof(float) + base_.held_bytes() + adapters_.held_bytes() +
         model_.held_bytes() + (optimizer_ ? optimizer_->held_bytes() : 0);
}

}  // namespace isthmus
