// SPDX-License-Identifier: Apache-2.0
// From exceptions to words and exit codes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

/// Runs `body` and returns its code. What it throws is told on stderr, the error itself on the last
/// line, and, with `json`, as one object on stdout; its exit code is returned.
[[nodiscard]] int report_errors(bool json, const std::function<int()>& body);

/// What a command ends with that has ended with `code`. Where something written to session.out was
/// lost (a full disk; a closed pipe is the reader's choice and no loss) and the command has left
/// what it was for on the disk (Session::saved), its code stands and a line on stderr says both;
/// not with --json, whose object is what was asked for. THROWS: SystemError when something else was
/// lost.
[[nodiscard]] int require_written(const Session& session, int code);

}  // namespace isthmus::app
