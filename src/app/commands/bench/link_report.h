// SPDX-License-Identifier: Apache-2.0
// Measured links for people, for programs, and as a links file. Pure.
#pragma once

#include <string>
#include <vector>

#include "app/common/terminal.h"
#include "config/links_file.h"
#include "transport/links/probe/link_survey.h"

namespace isthmus::app {

/// A row a direction, and what its columns mean.
[[nodiscard]] std::string link_table(const Survey& survey, const Terminal& terminal);

/// One object for the direction of `pair` from a to b, or from b to a. What was not measured is
/// null.
[[nodiscard]] std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up);

/// The entry of a links file: the line that, in a simulation, gives the rates that were measured.
/// What TCP had to repeat is in those already and becomes no `loss`.
[[nodiscard]] NotedLink noted_link(const Survey& survey, const PairMeasurement& pair);

}  // namespace isthmus::app
