// SPDX-License-Identifier: Apache-2.0
// Single rounds, predicted and measured, of one run: part of section_prediction.
#pragma once

#include <cstddef>
#include <string>

#include "report/page/page.h"

namespace isthmus::report {

/// A table, and a chart of both laid over each other, which goes to `page.charts`. Read from the
/// run's summary.json, since they are many and nothing else wants them. Empty where it has none.
[[nodiscard]] std::string round_errors_of(Page& page, std::size_t index);

}  // namespace isthmus::report
