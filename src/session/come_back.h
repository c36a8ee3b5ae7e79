// SPDX-License-Identifier: Apache-2.0
// A site that the others have lost, or that has lost the first, comes back to the run: its session
// ends and another one begins, as often as it takes.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "isthmus/session.h"
#include "record/run_lock.h"
#include "session/run/lone_training.h"

namespace isthmus::app {

/// What one session of a site is given by the sessions before it, and gives the next.
struct SessionTry {
  InHand& in_hand;
  std::optional<RunLock>& lock;  // to the end: no other process comes between two sessions
  /// The folder that the session before had: this one resumes the run there. Empty: the first.
  std::filesystem::path directory;
};

/// Calls `train`, and calls it again after each CutOffError and TryAgainError, but for a bounded
/// number of times. `gather`: net.gather. `say`: a line for people. Blocks for growing pauses
/// between two sessions. THROWS: what `train` throws otherwise, or after a wish to stop or leave.
void train_and_come_back(Duration gather, const Wishes& wishes,
                         const std::function<void(const std::string&)>& say,
                         const std::function<void(SessionTry&)>& train);

}  // namespace isthmus::app
