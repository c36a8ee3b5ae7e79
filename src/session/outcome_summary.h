// SPDX-License-Identifier: Apache-2.0
// The fields of summary.json that do not depend on the trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "record/json_line.h"
#include "session/run_session.h"

namespace isthmus::app {

/// Share of the workers' time spent computing, on the run's clock.
[[nodiscard]] double utilisation(const RunTotals& totals);

/// The fields of every run. `simulated_s`: the run's virtual time; nothing: the run took real time.
[[nodiscard]] JsonLine outcome_summary(const RunOutcome& outcome, std::int64_t parameters,
                                       std::optional<double> simulated_s);

/// Adds the results of this session's world, including the bytes between each two workers.
void add_world(JsonLine& line, const RunOutcome& outcome, const WorldResult& result);

/// The links that the configuration declares, for links.json.
[[nodiscard]] std::string links_json(const RunDirectory& directory, const Config& config);

}  // namespace isthmus::app
