// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/zero_one_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/all_elements.h"
#include "core/base/log.h"
#include "kernels/optimizer.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/frozen_variance.h"

namespace isthmus::outer {
namespace {

OuterOptions full_precision(const OuterOptions& options) {
  OuterOptions full = options;
  full.codec = options.one_bit_adam.warmup_codec;
  return full;
}

float decay_of(const Parameter& parameter, const AdamSettings& adam) {
  return parameter.decay ? static_cast<float>(adam.weight_decay) : 0.0f;
}

}  // namespace

ZeroOneAdam::ZeroOneAdam(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
                         Exchange& exchange, std::size_t bucket_values)
    : settings_(resolve_buckets(method, options)),
      options_(options.zero_one_adam),
      variance_floor_(options.one_bit_adam.variance_floor),
      inner_(inner),
      exchange_(exchange),
      bucket_values_(bucket_values),
      adam_(inner.adam_settings()),
      uncorrected_(inner),
      full_(method, full_precision(options), uncorrected_, exchange, bucket_values),
      schedule_(options_),
      buckets_(make_buckets(inner.parameters(), bucket_values)) {
  static_cast<void>(inner.adam_moments(0));  // refuses another inner optimizer now
  make_mean();
}

StepReport ZeroOneAdam::step() {
  const StepIndex t(steps_.value() + 1);
  StepReport report;
  switch (schedule_.next()) {
    case ZeroOneStep::kVariance:
      full_.go_on_from(steps_);
      report = full_.step();
      break;
    case ZeroOneStep::kCompressed:
      report = compressed_step(t);
      break;
    case ZeroOneStep::kLocal:
      report = local_step(t);
      break;
    case ZeroOneStep::kSync:
      report = local_step(t);
      report.rounds = synchronise(t);
      break;
  }
  steps_ = t;
  if (t.value() == options_.var_freeze_step) {
    begin_local_steps();
  }
  return report;
}

float ZeroOneAdam::own_clip(StepReport& report) {
  report.inner.grad_norm = gradient_norm(inner_);
  return static_cast<float>(kernels::clip_coefficient(adam_.clip, report.inner.grad_norm));
}

StepReport ZeroOneAdam::compressed_step(StepIndex t) {
  StepReport report{.step = t, .inner = inner_.gradients(t, {}), .rounds = {}};
  const float clip = own_clip(report);
  const auto b1 = static_cast<float>(adam_.beta1);
  inner_.read_moments(all_elements(inner_));
  bool counted = false;
  own_end_->set_fill([this, clip](std::size_t bucket, std::size_t begin, std::span<float> tile) {
    FlatView gradient;
    for (const Slice& slice : buckets_[bucket].slices) {
      gradient.append(inner_.gradient(slice.parameter).subspan(slice.begin, slice.size));
    }
    gradient.read(begin, tile);
    for (float& g : tile) g *= clip;
  });
  report.rounds =
      mean_->run(t, std::isfinite(report.inner.grad_norm), t.value() % settings_.commit_every == 0,
                 [&](std::size_t bucket, std::span<const float> mean) {
                   counted = true;
                   for (const Slice& slice : buckets_[bucket].slices) {
                     const AdamMoments moments = inner_.adam_moments(slice.parameter);
                     for (std::size_t k = slice.begin; k < slice.begin + slice.size; ++k) {
                       const bool active = moments.second[k] > 0;
                       moments.first[k] =
                           active ? b1 * moments.first[k] + (1 - b1) * mean[k - slice.begin] : 0.0f;
                     }
                     mean = mean.subspan(slice.size);
                   }
                 });
  if (!counted) return report;  // no worker had a finite gradient
  inner_.wrote_moments(all_elements(inner_));
  inner_.read_values(all_elements(inner_));
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    const AdamMoments moments = inner_.adam_moments(i);
    adam_step({.lr = static_cast<float>(inner_.learning_rate(t)),
               .eps = static_cast<float>(adam_.eps),
               .weight_decay = decay_of(inner_.parameters()[i], adam_)},
              inner_.parameters()[i].values, moments.first, moments.second);
  }
  inner_.wrote_values(all_elements(inner_));
  return report;
}

StepReport ZeroOneAdam::local_step(StepIndex t) {
  StepReport report{.step = t, .inner = inner_.gradients(t, {}), .rounds = {}};
  const float clip = own_clip(report);
  const double rate = inner_.learning_rate(t);
  local_.lr_sum += rate;  // on all workers alike, whatever becomes of the step here
  if (!std::isfinite(report.inner.grad_norm)) {
    log_warning("worker {}: step {}: its gradient is not finite; the local step is left out",
                exchange_.self().value(), t.value());
    return report;
  }
  const auto b1 = static_cast<float>(adam_.beta1);
  const auto eps = static_cast<float>(adam_.eps);
  const auto lr = static_cast<float>(rate);
  inner_.read_values(all_elements(inner_));
  inner_.read_moments(all_elements(inner_));
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    const std::span<float> x = inner_.parameters()[i].values;
    const std::span<const float> g = inner_.gradient(i);
    const AdamMoments moments = inner_.adam_moments(i);
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (!(moments.second[k] > 0)) continue;  // masked
      float& m = moments.first[k];
      m = b1 * m + (1 - b1) * (clip * g[k]);
      local_.moved[i][k] += lr * m;
      x[k] -= lr * (m / (std::sqrt(moments.second[k]) + eps));
    }
  }
  inner_.wrote_moments(all_elements(inner_));
  inner_.wrote_values(all_elements(inner_));
  return report;
}

std::vector<RoundReport> ZeroOneAdam::synchronise(StepIndex t) {
  const auto lr_sum = static_cast<float>(local_.lr_sum);
  const bool commit =
      t.value() / settings_.commit_every != local_.last_sync.value() / settings_.commit_every;
  inner_.read_moments(all_elements(inner_));
  std::vector<char> settled(buckets_.size());
  own_end_->set_fill([this](std::size_t bucket, std::size_t begin, std::span<float> tile) {
    FlatView moved;
    for (const Slice& slice : buckets_[bucket].slices) {
      moved.append(local_.moved[slice.parameter].span().subspan(slice.begin, slice.size));
    }
    moved.read(begin, tile);
  });
  std::vector<RoundReport> reports =
      mean_->run(t, !local_.partial, commit, [&](std::size_t bucket, std::span<const float> mean) {
        settled[bucket] = 1;
        for (const Slice& slice : buckets_[bucket].slices) {
          const std::span<float> m = inner_.adam_moments(slice.parameter).first;
          for (std::size_t k = slice.begin; k < slice.begin + slice.size; ++k) {
            const float agreed = mean[k - slice.begin];
            local_.moved[slice.parameter][k] = agreed;
            if (lr_sum > 0) m[k] = agreed / lr_sum;
          }
          mean = mean.subspan(slice.size);
        }
      });
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (settled[bucket] == 0) forget_movement(buckets_[bucket]);
  }
  const auto eps = static_cast<float>(adam_.eps);
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    const Parameter& parameter = inner_.parameters()[i];
    const std::span<const float> v = inner_.adam_moments(i).second;
    const float decay = lr_sum * decay_of(parameter, adam_);
    for (std::size_t k = 0; k < v.size(); ++k) {
      float& a = local_.anchor[i][k];
      a -= local_.moved[i][k] / (std::sqrt(v[k]) + eps) + decay * a;
      parameter.values[k] = a;
      local_.moved[i][k] = 0;
    }
  }
  inner_.wrote_moments(all_elements(inner_));
  inner_.wrote_values(all_elements(inner_));
  local_.lr_sum = 0;
  local_.last_sync = t;
  local_.partial = false;
  return reports;
}

/// Workers that agreed on nothing continue from their common state: the anchor, and no momentum.
void ZeroOneAdam::forget_movement(const Bucket& bucket) {
  for (const Slice& slice : bucket.slices) {
    std::ranges::fill(local_.moved[slice.parameter].span().subspan(slice.begin, slice.size), 0.0f);
    std::ranges::fill(inner_.adam_moments(slice.parameter).first.subspan(slice.begin, slice.size),
                      0.0f);
  }
}

void ZeroOneAdam::begin_local_steps() {
  freeze_variance(inner_, 1, variance_floor_);
  find_active_lanes();
  inner_.read_values(all_elements(inner_));
  for (const Parameter& parameter : inner_.parameters()) {
    local_.anchor.emplace_back(parameter.values);
    local_.moved.emplace_back(parameter.values.size());
  }
  local_.last_sync = steps_;
}

void ZeroOneAdam::make_mean() {
  own_end_.emplace(sizes_of(buckets_), settings_.codec);
  mean_.emplace(sizes_of(buckets_), settings_, exchange_, *own_end_);
}

// A separate mean, so that no residual of a gradient meets a sum of momenta.
void ZeroOneAdam::find_active_lanes() {
  buckets_ = active_buckets(inner_, bucket_values_);
  make_mean();
}

std::vector<RoundReport> ZeroOneAdam::finish() {
  std::vector<RoundReport> reports;
  if (local() && local_.last_sync != steps_) {
    if (local_.partial) {
      log_warning(
          "worker {}: its steps since it joined, {} at most, are not in the last round: 01-adam "
          "takes the mean of whole windows alone",
          exchange_.self().value(), steps_.value() - local_.last_sync.value());
    }
    reports = synchronise(steps_);
    for (RoundReport& report : reports) report.closing = true;
  }
  full_.commit_open_rounds(steps_);
  return reports;
}

std::span<const float> ZeroOneAdam::values(std::size_t parameter) const {
  if (local()) return local_.anchor[parameter].span();
  inner_.read_values(inner_.parameters()[parameter].elements);
  return inner_.parameters()[parameter].values;
}

Identity ZeroOneAdam::identity() const {
  return {{"method", settings_.method},
          {"codec", settings_.codec->name()},
          {"var_freeze_step", fmt::format("{}", options_.var_freeze_step)},
          {"var_update_scaler", fmt::format("{}", options_.var_update_scaler)},
          {"local_step_scaler", fmt::format("{}", options_.local_step_scaler)},
          {"local_step_clipper", fmt::format("{}", options_.local_step_clipper)}};
}

void ZeroOneAdam::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  mean_->save(writer);
  for (std::size_t i = 0; i < local_.anchor.size(); ++i) {
    writer.tensor(fmt::format("anchor/{}", i), local_.anchor[i].span());
    writer.tensor(fmt::format("moved/{}", i), local_.moved[i].span());
  }
  writer.real("lr_sum", local_.lr_sum);
  writer.integer("last_sync", local_.last_sync.value());
  if (local_.partial) writer.integer("partial", 1);
}

void ZeroOneAdam::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  schedule_.go_on_from(steps_);
  if (steps_.value() >= options_.var_freeze_step) {
    find_active_lanes();
    for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
      const std::size_t size = inner_.parameters()[i].values.size();
      reader.tensor(fmt::format("anchor/{}", i), local_.anchor.emplace_back(size).span());
      reader.tensor(fmt::format("moved/{}", i), local_.moved.emplace_back(size).span());
    }
  }
  mean_->load(reader);
  local_.lr_sum = reader.real("lr_sum");
  local_.last_sync = StepIndex(reader.integer("last_sync"));
  local_.partial = reader.contains("partial");
}

// The sum of the rates since the last sync is everyone's, and stays.
void ZeroOneAdam::forget_own_work() {
  full_.forget_own_work();
  mean_->forget();
  for (std::size_t i = 0; i < local_.anchor.size(); ++i) {
    std::ranges::copy(local_.anchor[i], inner_.parameters()[i].values.begin());
    local_.moved[i].fill_zero();
    inner_.wrote_values(inner_.parameters()[i].elements);
  }
  local_.partial = local() && local_.last_sync != steps_;
}

}  // namespace isthmus::outer
