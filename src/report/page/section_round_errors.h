// SPDX-License-Identifier: Apache-2.0
// Single rounds of one run, predicted and measured: part of section_prediction.
#pragma once

#include <cstddef>
#include <string>

#include "report/page/page.h"

namespace isthmus::report {

/// A table, and a chart of both, which is added to `page.charts`. Read from the run's summary.json,
/// since the rounds are many and only this section needs them. Empty if it has none.
[[nodiscard]] std::string round_errors_of(Page& page, std::size_t index);

}  // namespace isthmus::report
