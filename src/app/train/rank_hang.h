// SPDX-License-Identifier: Apache-2.0
// The end of a process of which a rank that is a thread does not come back.
#pragma once

#include <string>

namespace isthmus::app {

/// Tells `error` as an error of a lost peer is told (exit code 5; with `json` on stdout too) and
/// ends the process at once: threads that hang cannot be stopped or joined. On any thread.
[[noreturn]] void end_hanging_process(const std::string& error, bool json);

}  // namespace isthmus::app
