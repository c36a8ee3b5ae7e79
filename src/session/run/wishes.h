// SPDX-License-Identifier: Apache-2.0
// Effects of wishes to stop (isthmus/session.h).
#pragma once

#include "isthmus/errors.h"
#include "isthmus/session.h"

namespace isthmus::app {

/// The exit code of a run that has obeyed `wish`. REQUIRES: not kNone.
[[nodiscard]] inline ExitCode exit_code_of(StopWish wish) {
  return wish == StopWish::kRequeue ? ExitCode::kCheckpointedRequeue : ExitCode::kInterrupted;
}

/// THROWS: Error with the exit code of the wish, if there is a wish to stop.
inline void check_stop(const Wishes& wishes) {
  if (const StopWish wish = wishes.stop(); wish != StopWish::kNone) {
    throw Error(exit_code_of(wish), "stopped by a signal; nothing has been written");
  }
}

}  // namespace isthmus::app
