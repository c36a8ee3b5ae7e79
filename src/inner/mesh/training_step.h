// SPDX-License-Identifier: Apache-2.0
// Rules that every trainer of a language model follows, on every device. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "inner/model/model.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// Number of targets that count: those that are not negative.
[[nodiscard]] std::int64_t counted_targets(const TokenBatch& batch);
/// Factor from the sum of a training step's losses to the mean whose gradient is computed.
/// REQUIRES: a target that counts, or batch.mean_targets.
[[nodiscard]] double mean_factor(const TokenBatch& batch);

/// THROWS: RunError naming step, `what` ("loss", "gradient norm") and the remedy when `value` is
/// not finite.
void check_finite(StepIndex t, const char* what, double value);

/// AdamW's settings for an outer method that performs its update.
[[nodiscard]] AdamSettings adam_settings_of(const InnerConfig& inner);

/// The consecutive whole samples of a share. THROWS: ConfigError when the samples do not divide.
[[nodiscard]] TokenBatch share_of(const TokenBatch& batch, SampleShare share);

/// InnerLoop::loss of the sum over a batch.
[[nodiscard]] double mean_loss(const LossSum& sum);
/// InnerLoop::train_loss: `sum_losses` is called with the share, unless no target of it counts.
/// THROWS: as share_of.
[[nodiscard]] InnerStep step_of_share(const TokenBatch& batch, SampleShare share,
                                      const std::function<LossSum(const TokenBatch&)>& sum_losses);

}  // namespace isthmus
