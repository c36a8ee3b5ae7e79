// SPDX-License-Identifier: Apache-2.0
// From exceptions to messages and exit codes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

/// Runs `body` and returns its exit code. An exception is printed on stderr, the error itself on
/// the last line, and, with `json`, as one object on stdout; its exit code is returned.
[[nodiscard]] int report_errors(bool json, const std::function<int()>& body);

/// The exit code of a command that has ended with `code`. If output to session.out was lost (a full
/// disk; a closed pipe is the reader's choice and no loss) and the command has saved its result on
/// the disk (Session::saved), the code stays and a line on stderr reports both; except with --json,
/// whose object is the result. THROWS: SystemError when other output was lost.
[[nodiscard]] int require_written(const Session& session, int code);
/// The same of output that is all there is to the command: --help, --version.
[[nodiscard]] int require_written(const Terminal& out, int code);

}  // namespace isthmus::app
