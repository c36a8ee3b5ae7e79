// SPDX-License-Identifier: Apache-2.0
#include "session/come_back.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "session/run_session.h"
#include "session/site/rejoin_backoff.h"

namespace isthmus::app {
namespace {

/// RETURNS: false when a wish came first.
bool wait_before_return(Duration pause, const Wishes& wishes) {
  constexpr Duration kBetweenLooks = std::chrono::milliseconds(200);
  SystemRuntime runtime;
  const TimePoint end = runtime.clock().now() + pause;
  while (wishes.stop() == StopWish::kNone && !wishes.leaving()) {
    const TimePoint now = runtime.clock().now();
    if (now >= end) return true;
    const TimePoint look = std::min(end, now + kBetweenLooks);
    runtime.sleep_until(look);
  }
  return false;
}

}  // namespace

void train_and_come_back(Duration gather, const Wishes& wishes,
                         const std::function<void(const std::string&)>& say,
                         const std::function<void(SessionTry&)>& train) {
  constexpr int kReturns = 100;  // each brings a whole state over the links
  PendingDelta pending_delta;
  std::optional<RunLock> lock;
  SessionTry attempt{.pending_delta = pending_delta, .lock = lock, .directory = {}};
  RejoinBackoff pace(gather);
  for (int returns = 0;; ++returns) {
    const auto ends = [&] {
      return returns == kReturns || wishes.stop() != StopWish::kNone || wishes.leaving();
    };
    try {
      train(attempt);
      return;
    } catch (const CutOffError& error) {
      if (ends()) throw;
      const Duration pause = pace.pause(SystemRuntime().clock().now());
      say(fmt::format("{}: trying to come back{}, for net.gather = {}", error.what(),
                      pause == Duration{0}
                          ? ""
                          : fmt::format(", cut off soon after the last time, in {}",
                                        human_time(in_seconds(pause))),
                      human_time(in_seconds(gather))));
      if (!wait_before_return(pause, wishes)) throw;
      if (pending_delta.training) pending_delta.training->begin();
      attempt.directory = error.directory();
    } catch (const TryAgainError& error) {
      if (ends()) throw;
      say(fmt::format("{}: trying again", error.what()));
    }
  }
}

}  // namespace isthmus::app
