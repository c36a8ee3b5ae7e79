// SPDX-License-Identifier: Apache-2.0
// How a command tells its progress: the values of the flag --progress.
#pragma once

namespace isthmus::app {

enum class ProgressMode { kAuto, kPlain, kNone, kJson };

}  // namespace isthmus::app
