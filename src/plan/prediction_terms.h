// SPDX-License-Identifier: Apache-2.0
// The critical path of a run in words and numbers: named terms that add up to its length.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/critical_path.h"
#include "plan/prediction.h"

namespace isthmus::plan {

/// `end`: the last moment of the run; `computed`: total computing seconds of its worker.
[[nodiscard]] std::vector<PredictionTerm> terms_of(const PredictionInput& input,
                                                   const PathTime& end, double computed,
                                                   std::int64_t rounds);

}  // namespace isthmus::plan
