// SPDX-License-Identifier: Apache-2.0
// A site whose training is late for rounds (net.deadline): whether rounds may be begun by proxy,
// which training steps the site then skips, and the messages about both. The worker calls `skips`;
// the other calls may come from any task.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "isthmus/config.h"
#include "isthmus/types.h"
#include "record/run_status.h"
#include "transport/exchange/exchange_engine.h"
#include "transport/exchange/round_deadline.h"

namespace isthmus::app {

/// From net.deadline; "auto" waits at most a quarter of net.patience (but at least a millisecond),
/// even if that is shorter than the usual minimum of one second.
[[nodiscard]] std::optional<RoundDeadline> round_deadline(const Config& config);

/// Whether values that a round has not counted enter the site's next contribution.
[[nodiscard]] bool carries_lost(const Config& config);

class SiteLateness {
 public:
  /// `carries`: values that a round has not counted enter the next contribution (outer.carry).
  /// `before`: the lateness in earlier sessions of this process.
  explicit SiteLateness(bool carries, const LateStatus& before = {})
      : carries_(carries), so_far_(before) {}
  /// Sets the function that tells whether the site may begin a step; empty: it may not. After the
  /// call the previous function is not called any more.
  void ask(std::function<bool(StepIndex)> may_begin);
  /// Sets a callback for the lateness: called now, and at every change.
  void watch(std::function<void(const LateStatus&)> watch);
  [[nodiscard]] LateStatus so_far();
  /// Whether a round sent after step `sent` may be begun by proxy.
  [[nodiscard]] bool may_stand_in(StepIndex sent);
  /// A round was begun by proxy. Warns at the 1st, 2nd, 4th, ... time.
  void stood_in(const ProxyRound& round);
  /// Whether the worker should skip training step t: rounds sent up to step `ahead` were begun by
  /// proxy, so step t <= ahead comes too late; or `missed` rounds of a fragment in a row were, and
  /// the site first contributes the values that it carries: it skips steps until it has begun the
  /// fragment's next round itself. So one of three rounds counts the site, however slow it is; one
  /// of four if the others already wait for it in the third. Warns about skipped steps at the 1st,
  /// 2nd, 4th, ... time.
  [[nodiscard]] bool skips(StepIndex t, std::optional<StepIndex> ahead, int missed);

 private:
  const bool carries_;
  std::mutex mutex_;
  // Under mutex_.
  std::function<bool(StepIndex)> may_begin_;
  std::function<void(const LateStatus&)> watch_;
  LateStatus so_far_;
  // Of the worker.
  std::uint64_t times_ = 0;  // times it has caught up
  bool catches_up_ = false;
  bool told_of_pace_ = false;
};

}  // namespace isthmus::app
