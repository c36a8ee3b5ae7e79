// SPDX-License-Identifier: Apache-2.0
// One round of a run, to be predicted or played by itself. Pure.
#pragma once

#include <cstdint>

#include "isthmus/config.h"
#include "plan/prediction.h"

namespace isthmus::app {

struct LargestRound {
  PredictionInput input;
  std::int64_t values = 0;  // of the fragment as it is
};

/// The run's largest fragment exchanged once over the file's [[link]]s, and nothing else: ready for
/// `predict`. Of a large fragment so few values that `byte_scale` makes links count the rest.
/// THROWS: ConfigError where a pair of sites has no link.
[[nodiscard]] LargestRound largest_round(const Config& config);

}  // namespace isthmus::app
