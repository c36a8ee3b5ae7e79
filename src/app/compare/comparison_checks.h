// SPDX-License-Identifier: Apache-2.0
// What makes a comparison weak although it runs: too few rounds, windows cut short, epochs that
// flatter averaging, methods outside of their field. Notes for people; pure but for the data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/compare/comparison_plan.h"

namespace isthmus::app {

struct DataFacts {
  std::int64_t train_tokens = 0;
  double entropy = 0;  // nats a token, where it is known; else 0
};
using DataFactsOf = std::function<DataFacts(const Config&)>;

/// One sentence each. THROWS: as `data`.
[[nodiscard]] std::vector<std::string> weaknesses_of(const Experiment& experiment,
                                                     const ComparisonPlan& plan,
                                                     const DataFactsOf& data);

/// What a run says of its last steps before it begins (warnings_about_end), of every variant and
/// every trial of the comparison. One sentence each.
[[nodiscard]] std::vector<std::string> lost_steps_of(const Experiment& experiment,
                                                     const ComparisonPlan& plan);

/// The digest of `config` (Cell::configuration) under outer.final_sync = "drain", which was the
/// default before "full"; empty where the configuration says the key, or its method has none.
[[nodiscard]] std::string digest_under_former_default(const Config& config);

}  // namespace isthmus::app
