// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/one_bit_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/all_elements.h"
#include "core/base/log.h"
#include "kernels/cuda/device.h"
#include "kernels/optimizer.h"
#include "outer/parts/frozen_variance.h"
#include "outer/place/outer_placement.h"

namespace isthmus::outer {
namespace {

constexpr double kStableRatio = 0.96;  // arXiv:2102.02888 section 6.1

OuterOptions warm_up_options(const OuterOptions& options) {
  OuterOptions warm_up = options;
  warm_up.codec = options.one_bit_adam.warmup_codec;
  return warm_up;
}

}  // namespace

OneBitAdam::OneBitAdam(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
                       Exchange& exchange, std::size_t bucket_values, cuda::ResidentAdam* device)
    : settings_(resolve_buckets(method, options)),
      options_(options.one_bit_adam),
      inner_(inner),
      exchange_(exchange),
      bucket_values_(bucket_values),
      adam_(inner.adam_settings()),
      uncorrected_(inner),
      warm_up_(method, warm_up_options(options),
               options_.bias_correction ? inner : static_cast<InnerLoop&>(uncorrected_), exchange,
               bucket_values) {
  static_cast<void>(inner.adam_moments(0));  // refuses another inner optimizer now
  momentum_ = device == nullptr
                  ? frozen_momentum_on_host(inner, settings_.codec)
                  : frozen_momentum_on_device(inner, *settings_.codec, bucket_values, *device);
}

StepReport OneBitAdam::step() {
  const StepIndex t(steps_.value() + 1);
  StepReport report = frozen_at_ ? compressed_step(t) : warm_up_.step();
  if (!frozen_at_ && (options_.freeze ? t.value() >= *options_.freeze : variance_is_stable(t))) {
    freeze(t);
  }
  steps_ = t;
  return report;
}

StepReport OneBitAdam::compressed_step(StepIndex t) {
  StepReport report{.step = t, .inner = inner_.gradients(t, {}), .rounds = {}};
  report.inner.grad_norm = momentum_->gradient_norm(report.inner.idle);
  const bool fit = std::isfinite(report.inner.grad_norm);
  const auto b1 = static_cast<float>(adam_.beta1);
  momentum_->mix(b1, (1 - b1) * static_cast<float>(
                                    kernels::clip_coefficient(adam_.clip, report.inner.grad_norm)));
  bool counted = buckets_.empty();
  report.rounds = mean_->run(t, fit, t.value() % settings_.commit_every == 0,
                             [&](std::size_t bucket, std::span<const float> mean) {
                               counted = true;
                               momentum_->take(bucket, mean);
                             });
  if (!counted) return report;  // no worker had a finite gradient: no worker takes a step
  const double correction =
      options_.bias_correction ? 1 - std::pow(adam_.beta1, static_cast<double>(t.value())) : 1;
  momentum_->step({.lr = static_cast<float>(inner_.learning_rate(t)),
                   .momentum_scale = static_cast<float>(1 / correction),
                   .eps = static_cast<float>(adam_.eps),
                   .weight_decay = static_cast<float>(adam_.weight_decay)});
  return report;
}

bool OneBitAdam::variance_is_stable(StepIndex t) {
  const auto period = std::max<std::int64_t>(1, std::llround(1 / (1 - adam_.beta2)));
  if (t.value() % period != 0) {
    return false;
  }
  const double before = std::exchange(variance_before_, variance_norm());
  const bool rate_rises =
      t.value() <= period ||
      inner_.learning_rate(t) > inner_.learning_rate(StepIndex(t.value() - period));
  return before > 0 && !rate_rises && before / variance_before_ >= kStableRatio;
}

/// |v|_1 over all parameters, in canonical order, so that all workers decide alike.
double OneBitAdam::variance_norm() const {
  inner_.read_moments(all_elements(inner_));
  double sum = 0;
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    for (const float v : inner_.adam_moments(i).second) sum += static_cast<double>(v);
  }
  return sum;
}

void OneBitAdam::freeze(StepIndex t) {
  const double correction =
      options_.bias_correction ? 1 - std::pow(adam_.beta2, static_cast<double>(t.value())) : 1;
  freeze_variance(inner_, correction, options_.variance_floor);
  frozen_at_ = t;
  find_active_lanes();
  if (exchange_.self() == WorkerId(0)) {
    log_info("1bit-adam: variance frozen after step {}, {} lanes masked", t.value(), masked_lanes_);
  }
}

void OneBitAdam::find_active_lanes() {
  buckets_ = active_buckets(inner_, bucket_values_);
  masked_lanes_ = 0;
  for (const Parameter& parameter : inner_.parameters()) {
    masked_lanes_ += static_cast<std::int64_t>(parameter.values.size());
  }
  for (const Bucket& bucket : buckets_) {
    masked_lanes_ -= static_cast<std::int64_t>(bucket.values);
  }
  try {
    momentum_->begin(buckets_);
  } catch (const cuda::OutOfDeviceMemory& error) {  // another program may have taken it meanwhile
    momentum_ = frozen_momentum_on_host(inner_, settings_.codec);
    momentum_->begin(buckets_);
    log_cpu_computes(error);
  }
  mean_.emplace(sizes_of(buckets_), settings_, exchange_, *momentum_);
}

std::vector<RoundReport> OneBitAdam::finish() {
  warm_up_.commit_open_rounds(steps_);
  return {};
}

std::span<const float> OneBitAdam::values(std::size_t parameter) const {
  inner_.read_values(inner_.parameters()[parameter].elements);
  return inner_.parameters()[parameter].values;
}

Identity OneBitAdam::identity() const {
  return {{"method", settings_.method},
          {"codec", settings_.codec->name()},
          {"bias_correction", options_.bias_correction ? "true" : "false"}};
}

void OneBitAdam::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  writer.integer("frozen_at", frozen_at_ ? frozen_at_->value() : 0);
  writer.real("variance_before", variance_before_);
  if (mean_) mean_->save(writer);
}

void OneBitAdam::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  warm_up_.go_on_from(steps_);
  variance_before_ = reader.real("variance_before");
  if (const std::int64_t frozen_at = reader.integer("frozen_at"); frozen_at > 0) {
    frozen_at_ = StepIndex(frozen_at);
    find_active_lanes();
    mean_->load(reader);
  }
}

// Every step is a separate window, and its momentum belongs to all workers.
void OneBitAdam::forget_own_work() {
  warm_up_.forget_own_work();
  if (mean_) mean_->forget();
}

}  // namespace isthmus::outer
