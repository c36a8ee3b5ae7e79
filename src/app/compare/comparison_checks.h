// SPDX-License-Identifier: Apache-2.0
// Weaknesses of a comparison that runs without an error: too few rounds, shortened windows, epochs
// that favour averaging, methods outside their range. Notes for people; pure, except for the data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/compare/comparison_plan.h"

namespace isthmus::app {

struct DataFacts {
  std::int64_t train_tokens = 0;
  double entropy = 0;  // nats a token, if known; else 0
};
using DataFactsOf = std::function<DataFacts(const Config&)>;

/// One sentence each. THROWS: as `data`.
[[nodiscard]] std::vector<std::string> weaknesses_of(const Experiment& experiment,
                                                     const ComparisonPlan& plan,
                                                     const DataFactsOf& data);

/// The warnings of a run about its last steps (warnings_about_end), for every variant and trial of
/// the comparison. One sentence each.
[[nodiscard]] std::vector<std::string> lost_steps_of(const Experiment& experiment,
                                                     const ComparisonPlan& plan);

/// The digest of `config` (Cell::configuration) with outer.final_sync = "drain", the default before
/// "full"; empty if the configuration sets the key, or its method has none.
[[nodiscard]] std::string digest_under_former_default(const Config& config);

}  // namespace isthmus::app
