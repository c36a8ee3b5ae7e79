// SPDX-License-Identifier: Apache-2.0
// The end of a process in which a rank's thread hangs.
#pragma once

#include <string>

namespace isthmus::app {

/// Prints `error` like an error of a lost peer (exit code 5; with `json` on stdout too) and ends
/// the process at once, since hanging threads cannot be stopped or joined. Any thread.
[[noreturn]] void end_hanging_process(const std::string& error, bool json);

}  // namespace isthmus::app
