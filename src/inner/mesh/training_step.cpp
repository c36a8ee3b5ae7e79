// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "inner/model/samples.h"
#include "isthmus/errors.h"

namespace isthmus {

std::int64_t counted_targets(const TokenBatch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](std::int32_t target) { return target >= 0; });
}

double mean_factor(const TokenBatch& batch) {
  if (batch.mean_targets > 0) return 1 / batch.mean_targets;
  const std::int64_t counted = counted_targets(batch);
  ISTHMUS_CHECK(counted > 0, batch.sequences, batch.length);
  return 1 / static_cast<double>(counted);
}

void check_finite(StepIndex t, const char* what, double value) {
  if (std::isfinite(value)) return;
  throw RunError(
      fmt::format("step {}: the {} is {}: the run has diverged; lower inner.lr or set inner.clip",
                  t.value(), what, value));
}

AdamSettings adam_settings_of(const InnerConfig& inner) {
  return {.beta1 = inner.beta1,
          .beta2 = inner.beta2,
          .eps = inner.eps,
          .weight_decay = inner.weight_decay,
          .clip = inner.clip};
}

TokenBatch share_of(const TokenBatch& batch, SampleShare share) {
  if (share.count < 1 || batch.sequences % share.count != 0) {
    throw ConfigError(
        fmt::format("outer.samples = {}: must divide the {} sequences of a step and worker, each "
                    "sample reads its share of them; change it or train.global_batch",
                    share.count, batch.sequences));
  }
  const std::int64_t count = batch.sequences / share.count;
  return samples_of(batch, share.index * count, count);
}

double mean_loss(const LossSum& sum) { return sum.loss / static_cast<double>(sum.targets); }

InnerStep step_of_share(const TokenBatch& batch, SampleShare share,
                        const std::function<LossSum(const TokenBatch&)>& sum_losses) {
  const TokenBatch own = share_of(batch, share);
  if (counted_targets(own) == 0) return {};
  const LossSum sum = sum_losses(own);
  return {.loss = (sum.loss + sum.z_loss) / static_cast<double>(sum.targets),
          .grad_norm = 0,
          .tokens = sum.targets};
}

}  // namespace isthmus
