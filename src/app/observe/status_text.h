// SPDX-License-Identifier: Apache-2.0
// A run's status as text for a terminal. Pure.
#pragma once

#include <string>
#include <vector>

#include "app/common/terminal.h"
#include "record/run_status.h"

namespace isthmus::app {

/// Lines without newlines. `source`: a URL or folder.
[[nodiscard]] std::vector<std::string> status_lines(const RunStatus& status,
                                                    const Terminal& terminal,
                                                    const std::string& source);

/// A curve as one line of eight heights; empty without Unicode or with fewer than two points.
[[nodiscard]] std::string spark_line(const std::vector<ThinCurve::Point>& curve,
                                     std::size_t columns, const Terminal& terminal);

}  // namespace isthmus::app
