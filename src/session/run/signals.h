// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGUSR1 and SIGHUP turned into a wish the training loop reads between steps.
// First SIGINT: finish the step, checkpoint, exit 130; the second one ends the process at once.
// SIGTERM, SIGUSR1 (a scheduler's warning) or SIGHUP (a lost terminal): checkpoint at the next step
// and exit 85, "requeue". SIGUSR2: this site leaves, the others go on; elsewhere it does nothing.
#pragma once

#include "isthmus/errors.h"

namespace isthmus::app {

enum class StopWish { kNone, kInterrupt, kRequeue };

/// With which a run ends that has obeyed `wish`. REQUIRES: not kNone.
[[nodiscard]] inline ExitCode exit_code_of(StopWish wish) {
  return wish == StopWish::kRequeue ? ExitCode::kCheckpointedRequeue : ExitCode::kInterrupted;
}

/// Installs the handlers for its lifetime; one at a time in a process.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  /// What has been asked for so far. Any thread.
  [[nodiscard]] static StopWish wish();
  /// Whether this site has been asked to leave since the last call. Any thread.
  [[nodiscard]] static bool take_leave();
  /// Whether it has been asked to leave, and not been refused. Any thread.
  [[nodiscard]] static bool leaving();
  static void refuse_leave();
};

/// THROWS: Error with the exit code of an interrupt once there was a signal.
void stop_at_signal();

}  // namespace isthmus::app
