// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "inner/cuda/cuda_loop_memory.h"
#include "inner/mesh/training_step.h"
#include "inner/model/init.h"
#include "inner/model/samples.h"
#include "isthmus/errors.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/step_guard.h"

namespace isthmus {
namespace {

const LanguageModelOptions& checked(const LanguageModelOptions& options) {
  check_cuda_options(options);
  ISTHMUS_CHECK(options.mesh.ranks() == 1, options.mesh.ranks());  // one rank is a loop
  if (const std::string reason = cuda::unavailable(); !reason.empty()) {
    throw SystemError(fmt::format("device cuda: {}; train with --device cpu", reason));
  }
  return checked_options(options);
}

/// RETURNS: the result of `body`. THROWS: if the device has too little memory, in words that name
/// settings.
template <typename Body>
auto in_memory(const LanguageModelOptions& options, const Body& body) {
  try {
    return body();
  } catch (const cuda::OutOfDeviceMemory& error) {
    throw SystemError(cuda_step_memory_error(options, error.what()));
  }
}

}  // namespace

CudaLoop::CudaLoop(const LanguageModelOptions& options, BatchProvider batches,
                   const CudaLoopSettings& settings, CudaPeers* peers) try
    : options_(checked(options)),
      settings_(settings),
      peers_(peers),
      layout_(model_shape(options.model, options.context)),
      added_(CudaModel::added_ranges(layout_)),
      schedule_(options.inner, options.total_steps),
      provider_(std::move(batches)),
      mirror_(elements()),
      host_totals_(1) {
  allocate();
  kernels::ThreadTeam team(options.threads, options.cores);
  initialize(team, layout_, options.seed, {mirror_.data(), elements()});
  parameters_ = layout_parameters(layout_, {mirror_.data(), elements()});
  wrote_values({0, layout_.elements()});
} catch (const cuda::OutOfDeviceMemory& error) {
  throw SystemError(cuda_memory_error(options, settings, error.what()));
}

// Memory that is in use all the time comes first, so that the error names a setting that can be
// changed.
void CudaLoop::allocate() {
  const bool training = !options_.forward_only;
  const auto in_array = static_cast<std::size_t>(CudaModel::array_elements(layout_));
  const auto zeros_behind = [&](const auto& array) {
    cuda::fill_zero(stream_, array.data() + elements(), array.size() - elements());
  };
  values_ = cuda::DeviceArray<float>(in_array);
  zeros_behind(values_);
  if (options_.bf16) {
    working_ = cuda::DeviceArray<kernels::Bf16>(in_array);
    zeros_behind(working_);
  }
  totals_ = cuda::DeviceArray<CudaStepTotals>(1);
  gradients_ = cuda::DeviceArray<float>(in_array);
  zeros_behind(gradients_);  // a source's values come there
  if (training) {
    squares_ = cuda::DeviceArray<double>(cuda::squared_norm_scratch(layout_.elements()));
    optimizer_.emplace(options_.inner, layout_, stream_);
  }
  batches_.emplace(cuda_batches_shape(layout_, options_), provider_);
  model_ = make_cuda_model(layout_, cuda_model_options(options_, settings_), blas_);
  if (peers_ == nullptr) return;
  std::int64_t end = layout_.elements();
  for (const std::int64_t first : CudaModel::final_points(layout_)) {
    if (first > 0 && end - first < settings_.bucket_values) continue;
    buckets_.emplace_back().elements = {first, end};
    end = first;
  }
}

void CudaLoop::read_values(CanonicalRange range) {
  settle_beside();
  if (mirror_is_right_ || range.size() == 0) return;
  cuda::copy(stream_, mirror_.data() + range.begin, values_.data() + range.begin,
             static_cast<std::size_t>(range.size()));
  stream_.synchronize();
  mirror_is_right_ = range.size() == layout_.elements();
}

void CudaLoop::wrote_values(CanonicalRange range) {
  settle_beside();
  if (range.size() == 0) return;
  cuda::copy(stream_, values_.data() + range.begin, mirror_.data() + range.begin,
             static_cast<std::size_t>(range.size()));
  if (working_is_own_) static_cast<void>(round(values_.data(), range));
}

void CudaLoop::wrote_device_values(CanonicalRange range) {
  mirror_is_right_ = false;
  if (working_is_own_ && range.size() > 0) static_cast<void>(round(values_.data(), range));
}

bool CudaLoop::go_beside(cuda::OverlapHooks* beside) {
  beside_ = beside;
  return true;
}

CudaValues CudaLoop::round(const float* masters, CanonicalRange range) {
  if (working_.empty()) return {masters, masters};
  cuda::convert<float, kernels::Bf16>(stream_, range.size(), masters + range.begin,
                                      working_.data() + range.begin);
  return {masters, static_cast<const kernels::Bf16*>(working_.data())};
}

CudaValues CudaLoop::own_values() {
  const CanonicalRange all{0, layout_.elements()};
  if (!working_is_own_) {
    working_is_own_ = true;
    return round(values_.data(), all);
  }
  if (working_.empty()) return {values_.data(), static_cast<const float*>(values_.data())};
  return {values_.data(), static_cast<const kernels::Bf16*>(working_.data())};
}

bool CudaLoop::is_own(const ParameterSource& source) const {
  if (source.by_rows()) return false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (source.values(i).data() != parameters_[i].values.data()) return false;
  }
  return true;
}

CudaValues CudaLoop::values_of(const ParameterSource& source) {
  const auto* const there = dynamic_cast<const cuda::DeviceSource*>(&source);
  if (there == nullptr && is_own(source)) return own_values();
  const CanonicalRange all{0, layout_.elements()};
  working_is_own_ = working_.empty();
  if (there != nullptr) {
    there->fill(stream_, all, gradients_.data());
  } else {
    copy_values(source, gradients_.data());
  }
  return round(gradients_.data(), all);
}

void CudaLoop::copy_values(const ParameterSource& source, float* to) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    float* const place = to + parameter.elements.begin;
    if (source.by_rows() && parameter.layer == kNoLayer && parameter.shape.size() == 2) {
      const std::int64_t columns = parameter.shape[1];
      const std::int64_t at_once = std::max<std::int64_t>(32, kernels::kWeightRowsValues / columns);
      for (std::int64_t row = 0; row < parameter.shape[0]; row += at_once) {
        const std::int64_t count = std::min(at_once, parameter.shape[0] - row);
        staging_.put(stream_, place + row * columns, source.rows(i, columns, row, count));
      }
      continue;
    }
    const std::span<const float> values = source.values(i);
    ISTHMUS_CHECK(values.size() == parameter.values.size(), i, values.size());
    if (values.data() == parameter.values.data()) {
      cuda::copy<float>(stream_, place, values_.data() + parameter.elements.begin, values.size());
    } else {
      staging_.put(stream_, place, values);
    }
  }
}

void CudaLoop::repeat(RepeatedWork& work, std::int64_t shape, const RepeatedWork::Queue& queue) {
  if (settings_.graphs) {
    work.run(stream_, shape, queue);
  } else {
    RepeatedWork::by_hand(stream_, queue);
  }
}

CudaBatches::Step CudaLoop::queue_pass(StepIndex t) {
  ISTHMUS_CHECK(!options_.forward_only, t.value());
  const CudaValues values = own_values();
  CudaBatches::Step step = batches_->take(stream_, t);
  if (peers_ != nullptr) step.targets = peers_->targets(t);
  ISTHMUS_CHECK(step.targets > 0, t.value());
  // The pass that read the earlier scale has ended, or begins anew with the same one.
  host_totals_.data()->gradient_scale = 1 / static_cast<double>(step.targets);
  repeat(pass_, step.length, [&](const cuda::Graph::Mark& mark) {
    double* const scale = &totals_.data()->gradient_scale;
    cuda::copy<double>(stream_, scale, &host_totals_.data()->gradient_scale, 1);
    cuda::fill_zero(stream_, &totals_.data()->losses, 1);
    for (const CanonicalRange& range : added_) {
      cuda::fill_zero(stream_, gradients_.data() + range.begin,
                      static_cast<std::size_t>(range.size()));
    }
    CudaGradients gradients{.flat = gradients_.data(), .scale = scale};
    auto bucket = buckets_.begin();
    const auto mark_final = [&](std::int64_t first) {
      if (bucket->elements.begin == first) mark((bucket++)->final_);
    };
    for (std::int64_t part = 0; part < options_.micro_batches; ++part) {
      gradients.first = part == 0;
      const bool last = part + 1 == options_.micro_batches;
      if (last && !buckets_.empty()) gradients.final_from = mark_final;
      model_->loss_and_gradients(stream_, values, batches_->part(step, part), gradients,
                                 &totals_.data()->losses);
    }
    cuda::copy(stream_, &host_totals_.data()->losses, &totals_.data()->losses, 1);
  });
  return step;
}

void CudaLoop::queue_update(StepIndex t) {
  if (moments_) moments_->settle(stream_);
  optimizer_->prepare(stream_, learning_rate(t));
  repeat(update_, 0, [&](const cuda::Graph::Mark&) {
    CudaStepTotals* const totals = totals_.data();
    cuda::squared_norm(stream_, layout_.elements(), gradients_.data(), &totals->squares,
                       squares_.data());
    cuda::guard_step(stream_, &totals->losses, &totals->squares);
    optimizer_->queue(stream_, blas_, values_.data(), gradients_.data(), working_.data(),
                      &totals->squares);
    cuda::copy(stream_, &host_totals_.data()->squares, &totals->squares, 1);
  });
}

InnerStep CudaLoop::finish_pass(StepIndex t, const CudaBatches::Step& step) {
  batches_->read_ahead(t);
  if (peers_ != nullptr) sum_over_ranks();
  stream_.synchronize();
  const double loss = host_totals_.data()->losses.loss / static_cast<double>(step.targets);
  check_finite(t, "loss", loss);
  return {.loss = loss, .grad_norm = 0, .tokens = step.targets};
}

void CudaLoop::sum_over_ranks() {
  std::vector<CudaBucket> buckets;
  for (const Bucket& bucket : buckets_) {
    buckets.push_back({.values = {gradients_.data() + bucket.elements.begin,
                                  static_cast<std::size_t>(bucket.elements.size())},
                       .final_ = &bucket.final_});
  }
  peers_->sum_on_device(buckets);
  stream_.synchronize();
  cuda::LossTotals& losses = host_totals_.data()->losses;
  double sums[2] = {losses.loss, losses.z_loss};
  peers_->sum(sums);
  losses.loss = sums[0];
  losses.z_loss = sums[1];
  // A value on one rank that is not finite keeps all ranks from the update.
  cuda::copy(stream_, &totals_.data()->losses, &losses, 1);
}

double CudaLoop::finish_update(StepIndex t) {
  stream_.synchronize();
  const double norm = std::sqrt(host_totals_.data()->squares);
  check_finite(t, "gradient norm", norm);
  optimizer_->count();
  if (moments_) moments_->forget();
  mirror_is_right_ = false;
  return norm;
}

InnerStep CudaLoop::train_step(StepIndex t) {
  return in_memory(options_, [&] {
    CudaBatches::Step shape = queue_pass(t);
    if (beside_ != nullptr && beside_->passes_are_queued()) shape = queue_pass(t);
    if (peers_ == nullptr) queue_update(t);
    if (beside_ != nullptr) beside_->step_is_queued(t);
    InnerStep step = finish_pass(t, shape);
    if (peers_ != nullptr) queue_update(t);  // with the sums
    step.grad_norm = finish_update(t);
    return step;
  });
}

InnerStep CudaLoop::pass(StepIndex t) {
  return in_memory(options_, [&] {
    const CudaBatches::Step shape = queue_pass(t);
    return finish_pass(t, shape);
  });
}

InnerStep CudaLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  const InnerStep step = pass(t);
  if (!gradients_stay_) {
    static_cast<void>(gradient(0));  // makes room
    cuda::copy(stream_, gradients_mirror_.data(), gradients_.data(), elements());
    stream_.synchronize();
  }
  for (std::size_t i = parameters_.size(); on_ready && i-- > 0;) on_ready(i);
  return step;
}

std::span<float> CudaLoop::gradient(std::size_t parameter) {
  if (gradients_mirror_.empty()) {  // an exchange may ask before the first pass
    gradients_mirror_ = cuda::PinnedArray<float>(elements());
    std::fill_n(gradients_mirror_.data(), elements(), 0.0f);
  }
  const CanonicalRange range = parameters_[parameter].elements;
  return {gradients_mirror_.data() + range.begin, static_cast<std::size_t>(range.size())};
}

double CudaLoop::apply_gradients(StepIndex t) {
  ISTHMUS_CHECK(!gradients_stay_, t.value());
  static_cast<void>(gradient(0));
  return apply_gradients(t, gradients_mirror_.data());
}

double CudaLoop::apply_gradients(StepIndex t, const float* gradients) {
  settle_beside();
  ISTHMUS_CHECK(!options_.forward_only, t.value());
  static_cast<void>(own_values());
  cuda::copy(stream_, gradients_.data(), gradients, elements());
  cuda::fill_zero(stream_, &totals_.data()->losses, 1);  // of an evaluation, maybe
  queue_update(t);
  return finish_update(t);
}

LossSum CudaLoop::sum_losses(const TokenBatch& batch, const ParameterSource& source) {
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= options_.context, batch.length);
  settle_beside();
  const CudaValues values = values_of(source);
  cuda::LossTotals* const totals = &totals_.data()->losses;
  cuda::fill_zero(stream_, totals, 1);
  const std::int64_t at_once = batches_->rows_of_part() / batch.length;
  for (std::int64_t first = 0; first < batch.sequences; first += at_once) {
    const std::int64_t count = std::min(at_once, batch.sequences - first);
    model_->loss(stream_, values, batches_->put(stream_, samples_of(batch, first, count)), totals);
  }
  cuda::copy(stream_, &host_totals_.data()->losses, totals, 1);
  stream_.synchronize();
  const cuda::LossTotals& sum = host_totals_.data()->losses;
  ISTHMUS_CHECK(sum.targets > 0);
  return {.loss = sum.loss, .z_loss = sum.z_loss, .targets = sum.targets};
}

double CudaLoop::loss(const TokenBatch& batch, const ParameterSource& source) {
  const LossSum sum = in_memory(options_, [&] { return sum_losses(batch, source); });
  return sum.loss / static_cast<double>(sum.targets);
}

InnerStep CudaLoop::train_loss(StepIndex t, SampleShare share, const ParameterSource& source) {
  const LossSum sum = sum_losses(share_of(provider_(t), share), source);
  return {.loss = (sum.loss + sum.z_loss) / static_cast<double>(sum.targets),
          .grad_norm = 0,
          .tokens = sum.targets};
}

void CudaLoop::reset_optimizer() {
  if (optimizer_) optimizer_->reset(stream_);
  if (moments_) moments_->forget();
}

double CudaLoop::squares_of_values() {
  cuda::squared_norm(stream_, layout_.elements(), values_.data(), &totals_.data()->squares,
                     squares_.data());
  cuda::copy(stream_, &host_totals_.data()->squares, &totals_.data()->squares, 1);
  stream_.synchronize();
  return host_totals_.data()->squares;
}

void CudaLoop::take_optimizer(const CudaLoop& other) {
  optimizer_->take(stream_, *other.optimizer_);
  if (moments_) moments_->forget();
}

void CudaLoop::save(StateWriter& writer) const {
  settle_beside();
  settle_moments();
  if (optimizer_) optimizer_->save(stream_, writer);
  if (options_.batch_state.save) options_.batch_state.save(writer);
}

void CudaLoop::load(StateReader& reader) {
  settle_beside();
  if (optimizer_ && is_of_another_trainer(reader)) {
    reset_optimizer();
    return;
  }
  if (optimizer_) optimizer_->load(stream_, reader);
  if (moments_) moments_->forget();
  if (options_.batch_state.load) options_.batch_state.load(reader);
}

std::unique_ptr<InnerLoop> make_cuda_loop(const LanguageModelOptions& options,
                                          BatchProvider batches) {
  return std::make_unique<CudaLoop>(options, std::move(batches));
}

AdamSettings CudaLoop::adam_settings() const { return adam_settings_of(options_.inner); }

CudaMoments& CudaLoop::moments() {
  ISTHMUS_CHECK(optimizer_.has_value());
  if (!moments_) moments_.emplace(options_.inner, layout_, *optimizer_);
  return *moments_;
}

AdamMoments CudaLoop::adam_moments(std::size_t parameter) {
  return moments().of(parameters_[parameter].elements);
}

// Mirrors that are made after it would have to be read then.
void CudaLoop::read_moments(CanonicalRange range) {
  settle_beside();
  if (optimizer_ && options_.inner.optimizer == "adamw") moments().read(stream_, range);
}

void CudaLoop::wrote_moments(CanonicalRange range) {
  settle_beside();
  if (moments_) moments_->wrote(stream_, range);
}

float* CudaLoop::device_moment(int index) {
  ISTHMUS_CHECK(optimizer_.has_value());
  if (moments_) moments_->settle(stream_);
  return optimizer_->moment(index);
}

void CudaLoop::wrote_device_moments() {
  if (moments_) moments_->forget();
}

void CudaLoop::settle_moments() const {
  if (!moments_) return;
  moments_->settle(stream_);
  stream_.synchronize();
}

}  // namespace isthmus
