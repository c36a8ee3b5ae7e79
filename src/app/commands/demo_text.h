// SPDX-License-Identifier: Apache-2.0
// The training text of `demo`, part of the program, so that the demo shows the same numbers on
// every machine.
#pragma once

#include <string_view>

namespace isthmus::app {

/// demo_text.txt, 394 kB of ASCII: the prose of the project's own documentation as of November 2026
/// (Apache-2.0).
extern const std::string_view kDemoText;

}  // namespace isthmus::app
