// SPDX-License-Identifier: Apache-2.0
// Measured links for people, for programs, and as a links file. Pure.
#pragma once

#include <string>
#include <vector>

#include "app/common/terminal.h"
#include "config/links_file.h"
#include "transport/links/probe/link_survey.h"

namespace isthmus::app {

/// A row for each direction, and an explanation of the columns.
[[nodiscard]] std::string link_table(const Survey& survey, const Terminal& terminal);

/// One object for the direction of `pair` from a to b (`up`), or from b to a. Values that were not
/// measured are null.
[[nodiscard]] std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up);

/// The entry of a links file whose simulation gives the measured rates. The rates include the
/// effect of TCP's retransmissions, which therefore do not become a `loss`.
[[nodiscard]] NotedLink noted_link(const Survey& survey, const PairMeasurement& pair);

}  // namespace isthmus::app
