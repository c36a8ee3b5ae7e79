// SPDX-License-Identifier: Apache-2.0
// What every trainer of a language model holds to, wherever it computes. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "isthmus/config.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// Targets that count: those that are not negative.
[[nodiscard]] std::int64_t counted_targets(const TokenBatch& batch);
/// Factor of the sum of a training step's losses in the mean that its gradient is of.
/// REQUIRES: a target that counts, or batch.mean_targets.
[[nodiscard]] double mean_factor(const TokenBatch& batch);

/// THROWS: RunError naming step, `what` ("loss", "gradient norm") and the remedy where `value` is
/// not finite.
void check_finite(StepIndex t, const char* what, double value);

/// What an outer method that takes AdamW's update over is told of it.
[[nodiscard]] AdamSettings adam_settings_of(const InnerConfig& inner);

/// The whole samples that a share of them is, neighbours of one another.
/// THROWS: ConfigError when the samples do not divide.
[[nodiscard]] TokenBatch share_of(const TokenBatch& batch, SampleShare share);

}  // namespace isthmus
