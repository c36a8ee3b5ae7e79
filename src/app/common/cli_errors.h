// SPDX-License-Identifier: Apache-2.0
// From exceptions to words and exit codes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/common/terminal.h"

namespace isthmus::app {

/// Runs `body` and returns its code. What it throws is told on stderr, the error itself on the last
/// line, and, with `json`, as one object on stdout; its exit code is returned.
[[nodiscard]] int report_errors(bool json, const std::function<int()>& body);

/// THROWS: SystemError when something written to `out` was lost (a full disk); a closed pipe is the
/// reader's choice and no error.
void require_written(const Terminal& out);

}  // namespace isthmus::app
