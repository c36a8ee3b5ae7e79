// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP, turned into wishes that the training loop reads
// between steps. First SIGINT: finish the step, checkpoint, exit 130, also after one of the next
// three; the second SIGINT ends the process at once. SIGTERM, SIGUSR1 (a scheduler's warning) or
// SIGHUP (a lost terminal; ignored under nohup): checkpoint at the next step and exit 85,
// "requeue". SIGUSR2: this site leaves the run, exit 85; no effect without sites.
#pragma once

#include "isthmus/session.h"
#include "session/run/wishes.h"

namespace isthmus::app {

/// Installs the handlers for its lifetime and restores the previous ones at its end; one at a time
/// in a process. A new scope clears all earlier wishes.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  /// The wishes set by this process's signals: the program's runs obey them.
  [[nodiscard]] static Wishes& wishes();
  /// The wish so far. Any thread.
  [[nodiscard]] static StopWish wish() { return wishes().stop(); }
  /// Whether this site was asked to leave, and the run has not refused. Any thread.
  [[nodiscard]] static bool leaving() { return wishes().leaving(); }
};

/// THROWS: Error once a signal has asked to stop: exit code 130 after SIGINT, 85 after SIGTERM,
/// SIGUSR1 and SIGHUP.
inline void stop_at_signal() { check_stop(SignalScope::wishes()); }

}  // namespace isthmus::app
