// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/language_model_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <string>

#include "core/base/check.h"
#include "inner/loop/lora_loop.h"
#include "inner/loop/model_cost.h"
#include "inner/mesh/training_step.h"
#include "inner/model/init.h"
#include "inner/model/model_source.h"
#include "inner/model/paged_weights.h"
#include "inner/model/samples.h"
#include "isthmus/errors.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {
constexpr std::int64_t kClearBlock = std::int64_t{1} << 16;

/// The ZeRO stage: state is shared out only if there are other ranks.
int zero_of(const LanguageModelOptions& options) {
  return options.mesh.dp > 1 && !options.forward_only ? options.zero : 0;
}

std::span<float> of_tensor(std::span<float> flat, const TensorInfo& tensor) {
  return flat.subspan(static_cast<std::size_t>(tensor.elements.begin),
                      static_cast<std::size_t>(tensor.elements.size()));
}

std::size_t values_of(const ModelLayout& layout) {
  return static_cast<std::size_t>(layout.elements());
}

LanguageModel<float>::Purpose purpose_of(const LanguageModelOptions& options) {
  if (options.forward_only) {
    return LanguageModel<float>::Purpose::kInference;
  }
  return LanguageModel<float>::training(options.recompute);
}

std::string memory_error(const LanguageModelOptions& options) {
  const ModelLayout layout(model_shape(options.model, options.context));
  const MemoryEstimate memory = loop_memory(layout, options);
  constexpr double kGiB = 1 << 30;
  return fmt::format(
      "model of {} parameters: no memory for it ({:.1f} GiB a worker, {:.1f} of them activations): "
      "make the model or train.global_batch smaller, parallel.micro_batches larger, or set "
      "train.recompute, or train.offload for all but the activations",
      layout.elements(), static_cast<double>(memory.total()) / kGiB,
      static_cast<double>(memory.activations) / kGiB);
}
}  // namespace

const LanguageModelOptions& checked_options(const LanguageModelOptions& options) {
  if (options.sequences < 1 || options.context < 1) {
    throw ConfigError(
        fmt::format("train.context = {}, {} samples a step and worker: both must be at least 1",
                    options.context, options.sequences));
  }
  const ModelShape shape = model_shape(options.model, options.context);
  check_mesh(shape, options.mesh, options.sequences, options.context);
  const std::int64_t samples = options.sequences / options.mesh.dp;
  if (options.micro_batches < 1 || samples % options.micro_batches != 0) {
    throw ConfigError(fmt::format(
        "parallel.micro_batches = {}: must divide the {} samples of a step and {}",
        options.micro_batches, samples, options.mesh.dp > 1 ? "data-parallel rank" : "worker"));
  }
  check_zero(zero_of(options), options.schedule, options.inner);
  check_recompute(options.schedule, options.recompute);
  return options;
}

MeshOptions mesh_options(const LanguageModelOptions& options) {
  return {.mesh = options.mesh,
          .schedule = options.schedule,
          .virtual_stages = options.virtual_stages,
          .sequences = options.sequences,
          .micro_batches = options.micro_batches,
          .context = options.context,
          .purpose = purpose_of(options),
          .bf16 = options.bf16,
          .threads = options.processes != nullptr
                         ? options.threads
                         : std::max(1, options.threads / options.mesh.ranks()),
          .codecs = options.rank_codecs,
          .processes = options.processes != nullptr,
          .zero = zero_of(options),
          .inner = options.inner,
          .patience = options.patience,
          .bucket_values = options.bucket_values};
}

MemoryEstimate loop_memory(const ModelLayout& layout, const LanguageModelOptions& options) {
  if (layout.shape().lora.rank > 0) return lora_memory(layout, options);
  if (options.mesh.ranks() > 1) {
    MemoryEstimate memory = mesh_memory(layout, options.inner, mesh_options(options));
    if (options.whole_gradients) memory.gradients = memory.parameters;
    return memory;
  }
  const std::int64_t rows = options.sequences / options.micro_batches * options.context;
  if (options.forward_only) return inference_memory(layout, rows, options.bf16);
  return training_memory(layout, options.inner, rows, options.recompute, options.bf16,
                         options.micro_batches);
}

LanguageModelLoop::LanguageModelLoop(const LanguageModelOptions& options, BatchProvider batches)
    : LanguageModelLoop(options, std::move(batches), {}) {}

LanguageModelLoop::LanguageModelLoop(const LanguageModelOptions& options, BatchProvider batches,
                                     const MeshMaker& make_mesh) try
    : options_(checked_options(options)),
      layout_(model_shape(options.model, options.context)),
      batches_(std::move(batches)),
      schedule_(options.inner, options.total_steps),
      team_(options.threads, options.cores),
      values_(StateArray::unfilled(values_of(layout_))),
      gradients_(StateArray::unfilled(
          options.forward_only || zero_of(options) > 0 || make_mesh ? 0 : values_of(layout_))),
      ranks_have_weights_(make_mesh || (zero_of(options) > 0 && options.processes != nullptr)) {
  ISTHMUS_CHECK(layout_.shape().lora.rank == 0);  // those are a LoraLoop's
  if (make_mesh) {
    mesh_ = make_mesh(layout_, values_.data());
  } else if (options.mesh.ranks() > 1) {
    mesh_ = options.processes != nullptr ? make_process_mesh(layout_, mesh_options(options),
                                                             *options.processes, values_.data())
                                         : make_thread_mesh(layout_, mesh_options(options));
  } else {
    model_.emplace(layout_, options.sequences / options.micro_batches * options.context,
                   purpose_of(options), options.bf16);
    if (layout_.shape().tied && !options.forward_only) {
      embedding_rows_.emplace(
          embedding_rows_size(layout_, options.sequences * options.context, options.micro_batches));
    }
  }
  initialize(team_, layout_, options.seed, values());
  if (!options.forward_only) {
    squares_.resize(layout_.tensors().size());
    if (zero_of(options) > 0 || make_mesh) {
      sharded_.emplace(options_.inner, layout_, *mesh_);
    } else {
      optimizer_.emplace(options.inner, layout_);
      clear_gradients();
    }
  }
  parameters_ = layout_parameters(layout_, values());
} catch (const std::bad_alloc&) {
  throw SystemError(memory_error(options));
}

std::span<float> LanguageModelLoop::values() const { return values_.span(); }

std::span<float> LanguageModelLoop::all_gradients() const { return gradients_.span(); }

void LanguageModelLoop::clear_gradients() {
  if (gradients_.in_file()) {
    gradients_.fill_zero();
    return;
  }
  float* const g = all_gradients().data();
  team_.for_blocks(layout_.elements(), kClearBlock, [g](std::int64_t begin, std::int64_t end) {
    std::fill(g + begin, g + end, 0.0f);
  });
}

void LanguageModelLoop::read_values(CanonicalRange elements) {
  if (sharded_) mesh_->read_weights(elements);
}

void LanguageModelLoop::wrote_values(CanonicalRange elements) {
  if (sharded_) mesh_->wrote_weights(elements);
}

InnerStep LanguageModelLoop::train_step(StepIndex t) {
  // A gradient's norm is taken where it has just been computed, while it is in cache.
  GradientReady take_norm;
  if (!sharded_) {
    take_norm = [this](std::size_t parameter) { squares_[parameter] = squared_norm(parameter); };
  }
  InnerStep step = run_pass(t, take_norm, sharded_.has_value());
  step.grad_norm = update(t);
  return step;
}

InnerStep LanguageModelLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  need_gradients();
  return run_pass(t, on_ready, false);
}

InnerStep LanguageModelLoop::run_pass(StepIndex t, const GradientReady& on_ready, bool slices) {
  ISTHMUS_CHECK(!options_.forward_only, t.value());
  if (options_.processes != nullptr) options_.processes->step = t.value();
  const TokenBatch batch = batches_(t);
  ISTHMUS_CHECK(batch.sequences == options_.sequences, batch.sequences, options_.sequences);
  const std::int64_t targets = counted_targets(batch);
  const double scale = mean_factor(batch);
  const LossSum sum = mesh_ ? mesh_gradient_pass(batch, scale, on_ready, slices)
                            : gradient_pass(batch, scale, on_ready);
  const double loss = targets == 0 ? 0 : sum.loss / static_cast<double>(targets);
  check_finite(t, "loss", loss);
  return {.loss = loss, .grad_norm = 0, .tokens = targets};
}

LossSum LanguageModelLoop::gradient_pass(const TokenBatch& batch, double scale,
                                         const GradientReady& on_ready) {
  clear_gradients();
  if (embedding_rows_) embedding_rows_->begin();
  FlatWeights<float> flat(layout_, values().data());
  PagedWeights weights(
      flat, layout_, [this](std::size_t i) { return of_tensor(values(), layout_.tensors()[i]); },
      all_gradients());
  const std::int64_t share = options_.sequences / options_.micro_batches;
  LossSum sum;
  for (std::int64_t part = 0; part < options_.micro_batches; ++part) {
    BackwardOptions<float> backward{.gradient_scale = scale,
                                    .gradients = all_gradients().data(),
                                    .embedding_rows = embedding_rows_ ? &*embedding_rows_ : nullptr,
                                    .last = part + 1 == options_.micro_batches,
                                    .on_ready = {},
                                    .on_part = [&](PassPart begun) {
                                      weights.begin(begun);
                                      if (on_part_) on_part_(begun);
                                    }};
    if (backward.last) backward.on_ready = on_ready;
    sum += model_->loss_and_gradients(team_, weights, samples_of(batch, part * share, share),
                                      backward);
  }
  return sum;
}

// A gradient is final once the last rank has given its share, so all are announced at the end.
LossSum LanguageModelLoop::mesh_gradient_pass(const TokenBatch& batch, double scale,
                                              const GradientReady& on_ready, bool slices) {
  if (on_part_) on_part_(PassPart::kForward);
  float* const whole = all_gradients().data();
  const LossSum sum = sharded_ ? mesh_->loss_and_slices(values().data(), batch, scale, squares_)
                               : mesh_->loss_and_gradients(values().data(), batch, scale, whole);
  if (sharded_ && !slices) mesh_->collect(RankValues::kGradients, whole);
  if (on_part_) on_part_(PassPart::kEnd);
  for (std::size_t i = parameters_.size(); on_ready && i-- > 0;) on_ready(i);
  // If the ranks have weights of their own, the mesh reports the values that it reads and writes.
  if (!ranks_have_weights_) state_done(values(), StateUse::kRead);
  state_done(all_gradients(), StateUse::kWrite);
  return sum;
}

void LanguageModelLoop::need_gradients() {
  if (gradients_.empty()) gradients_ = StateArray(values_of(layout_));
}

std::span<float> LanguageModelLoop::gradient(std::size_t parameter) {
  need_gradients();  // an exchange may ask before the first pass
  const CanonicalRange elements = parameters_[parameter].elements;
  return all_gradients().subspan(static_cast<std::size_t>(elements.begin),
                                 static_cast<std::size_t>(elements.size()));
}

double LanguageModelLoop::squared_norm(std::size_t parameter) {
  const std::span<const float> values = gradient(parameter);
  return kernels::squared_norm<float>(team_, static_cast<std::int64_t>(values.size()),
                                      values.data());
}

double LanguageModelLoop::apply_gradients(StepIndex t) {
  ISTHMUS_CHECK(!options_.forward_only, t.value());
  for (std::size_t i = 0; i < squares_.size(); ++i) {
    squares_[i] = squared_norm(i);
    state_done(gradient(i), StateUse::kWrite);
  }
  if (sharded_) mesh_->hand_out(RankValues::kGradients, all_gradients().data());
  return update(t);
}

double LanguageModelLoop::update(StepIndex t) {
  const double norm = std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
  check_finite(t, "gradient norm", norm);
  const double clip = kernels::clip_coefficient(options_.inner.clip, norm);
  if (sharded_) {
    sharded_->update(learning_rate(t), clip, values());
    if (!ranks_have_weights_) state_done(values(), StateUse::kWrite);
  } else {
    optimizer_->update(team_, learning_rate(t), clip, values(), all_gradients());
  }
  return norm;
}

LossSum LanguageModelLoop::sum_losses(const TokenBatch& batch, const ParameterSource& source) {
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= options_.context, batch.length);
  if (mesh_) {
    const LossSum whole = mesh_->loss(flat_values(source), batch);
    ISTHMUS_CHECK(whole.targets > 0);
    return whole;
  }
  const std::int64_t rows = options_.sequences / options_.micro_batches * options_.context;
  const std::int64_t at_once = rows / batch.length;
  SourceWeights direct(layout_, source);
  PagedWeights weights(direct, layout_, [&](std::size_t i) { return source.values(i); });
  LossSum sum;
  for (std::int64_t first = 0; first < batch.sequences; first += at_once) {
    const std::int64_t count = std::min(at_once, batch.sequences - first);
    weights.begin(PassPart::kForward);
    sum += model_->loss(team_, weights, samples_of(batch, first, count));
    weights.begin(PassPart::kEnd);
  }
  ISTHMUS_CHECK(sum.targets > 0);
  return sum;
}

const float* LanguageModelLoop::flat_values(const ParameterSource& source) {
  bool own = true;
  for (std::size_t i = 0; i < parameters_.size() && own; ++i) {
    own = source.values(i).data() == parameters_[i].values.data();
  }
  if (own) return values().data();
  if (source_values_.empty()) source_values_ = StateArray(values_of(layout_));
  float* const flat = source_values_.data();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::span<const float> from = source.values(i);
    ISTHMUS_CHECK(static_cast<std::int64_t>(from.size()) == parameters_[i].elements.size(), i);
    std::ranges::copy(from, flat + parameters_[i].elements.begin);
  }
  return flat;
}

double LanguageModelLoop::loss(const TokenBatch& batch, const ParameterSource& source) {
  return mean_loss(sum_losses(batch, source));
}

InnerStep LanguageModelLoop::train_loss(StepIndex t, SampleShare share,
                                        const ParameterSource& source) {
  return step_of_share(batches_(t), share,
                       [&](const TokenBatch& own) { return sum_losses(own, source); });
}

std::size_t LanguageModelLoop::held_bytes() const {
  const std::size_t values = values_.size() + gradients_.size() + source_values_.size();
  return values * sizeof(float) + (optimizer_ ? optimizer_->held_bytes() : 0) +
         static_cast<std::size_t>(embedding_rows_ ? embedding_rows_->held_bytes() : 0) +
         (model_ ? model_->held_bytes() : mesh_->held_bytes());
}

double LanguageModelLoop::learning_rate(StepIndex t) const { return schedule_.at(t); }

AdamSettings LanguageModelLoop::adam_settings() const { return adam_settings_of(options_.inner); }

AdamMoments LanguageModelLoop::adam_moments(std::size_t parameter) {
  if (sharded_) {
    throw ConfigError(
        fmt::format("parallel.zero = {}, a mesh of {} x {} x {} ranks: the outer method reads and "
                    "writes Adam's moments, which the ranks keep; leave zero out and train on the "
                    "CPU, or choose another outer.method",
                    options_.zero, options_.mesh.tp, options_.mesh.pp, options_.mesh.dp));
  }
  ISTHMUS_CHECK(optimizer_.has_value());
  return optimizer_->adam_moments(parameters_[parameter].elements);
}

void LanguageModelLoop::reset_optimizer() {
  if (optimizer_) optimizer_->reset();
  if (sharded_) sharded_->reset();
}

void LanguageModelLoop::save(StateWriter& writer) const {
  if (optimizer_) optimizer_->save(writer);
  if (sharded_) sharded_->save(writer);
  if (options_.batch_state.save) options_.batch_state.save(writer);
}

void LanguageModelLoop::load(StateReader& reader) {
  if ((optimizer_ || sharded_) && is_of_another_trainer(reader)) {
    reset_optimizer();
    return;
  }
  if (optimizer_) optimizer_->load(reader);
  if (sharded_) sharded_->load(reader);
  if (options_.batch_state.load) options_.batch_state.load(reader);
}

}  // namespace isthmus
