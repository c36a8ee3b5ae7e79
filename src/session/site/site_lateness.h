// SPDX-License-Identifier: Apache-2.0
// A site whose training is late for rounds (net.deadline): whether they may be begun in its name,
// which steps it then skips, what people hear of both. `skips` is for the worker; the other calls
// may come from any task.
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

/// As net.deadline says; "auto" waits for a quarter of net.patience at most (a millisecond where
/// that is shorter still), even where that is less than the second that it waits at least
/// otherwise.
[[nodiscard]] std::optional<RoundDeadline> round_deadline(const Config& config);

/// Whether what a round has not counted of a site enters with its next contribution.
[[nodiscard]] bool carries_lost(const Config& config);

class SiteLateness {
 public:
  /// `carries`: what a round has not counted enters with the next contribution (outer.carry).
  /// `before`: how late the site has been in its process's sessions before this one.
  explicit SiteLateness(bool carries, const LateStatus& before = {})
      : carries_(carries), so_far_(before) {}
  /// Who knows whether the site may begin a step; empty: nobody, and it may not. No call of what
  /// was given before is made after this.
  void ask(std::function<bool(StepIndex)> may_begin);
  /// Hears how late the site has been: now, and whenever that changes.
  void watch(std::function<void(const LateStatus&)> watch);
  [[nodiscard]] LateStatus so_far();
  /// Whether a round sent after that step may be begun in the site's name.
  [[nodiscard]] bool may_stand_in(StepIndex sent);
  /// That one was. Tells people at 1, 2, 4, ... times.
  void stood_in(const ProxyRound& round);
  /// Whether training step t is not worth taking. Rounds sent after step `ahead` and before have
  /// been begun without it; or so many of a fragment's rounds in a row, `missed`, that what it
  /// carries comes first: it skips until it has begun the fragment's next round itself. So of three
  /// rounds one counts it, however slow it is, of four where the others already wait for it in the
  /// third. Tells people how many steps were skipped, at 1, 2,
  /// 4, ... times.
  [[nodiscard]] bool skips(StepIndex t, std::optional<StepIndex> ahead, int missed);

 private:
  const bool carries_;
  std::mutex mutex_;
  // Under mutex_.
  std::function<bool(StepIndex)> may_begin_;
  std::function<void(const LateStatus&)> watch_;
  LateStatus so_far_;
  // Of the worker.
  std::uint64_t times_ = 0;  // it has caught up
  bool catches_up_ = false;
  bool told_of_pace_ = false;
};

}  // namespace isthmus::app
