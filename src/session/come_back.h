// SPDX-License-Identifier: Apache-2.0
// Rejoining after a loss: a site that the others have lost, or that has lost site 0, ends its
// session and begins another one, repeatedly if needed.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "isthmus/session.h"
#include "record/run_lock.h"
#include "session/run/offline_training.h"

namespace isthmus::app {

/// State that the sessions of one site hand on to each other.
struct SessionTry {
  PendingDelta& pending_delta;
  std::optional<RunLock>& lock;  // held to the end: no other process enters between two sessions
  /// The folder of the previous session, in which this one resumes the run. Empty: first session.
  std::filesystem::path directory;
};

/// Calls `train`, and calls it again after each CutOffError and TryAgainError, a bounded number of
/// times. `gather`: net.gather. `say`: a line for people. Blocks between two sessions, for growing
/// pauses. THROWS: other errors of `train`, and its last error after a wish to stop or leave.
void train_and_come_back(Duration gather, const Wishes& wishes,
                         const std::function<void(const std::string&)>& say,
                         const std::function<void(SessionTry&)>& train);

}  // namespace isthmus::app
