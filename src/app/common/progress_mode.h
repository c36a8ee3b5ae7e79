// SPDX-License-Identifier: Apache-2.0
// The display of a command's progress: the values of the flag --progress.
#pragma once

namespace isthmus::app {

enum class ProgressMode { kAuto, kPlain, kNone, kJson };

}  // namespace isthmus::app
