// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_lateness.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "core/base/log.h"

namespace isthmus::app {
namespace {

/// Rounds of a fragment in a row for which a site may be late; then it contributes the work that it
/// carries.
constexpr int kMostMissed = 2;
constexpr Duration kShortest = std::chrono::milliseconds(1);

}  // namespace

std::optional<RoundDeadline> round_deadline(const Config& config) {
  if (!config.net.deadline) return std::nullopt;
  const bool adapts = *config.net.deadline == Duration{0};
  return adapts ? RoundDeadline::adaptive(std::max(config.outer.patience / 4, kShortest))
                : RoundDeadline(*config.net.deadline);
}

bool carries_lost(const Config& config) { return config.outer.carry == LostContribution::kCarry; }

void SiteLateness::ask(std::function<bool(StepIndex)> may_begin) {
  const std::scoped_lock lock(mutex_);
  may_begin_ = std::move(may_begin);
}

void SiteLateness::watch(std::function<void(const LateStatus&)> watch) {
  const std::scoped_lock lock(mutex_);
  watch_ = std::move(watch);
  watch_(so_far_);
}

LateStatus SiteLateness::so_far() {
  const std::scoped_lock lock(mutex_);
  return so_far_;
}

bool SiteLateness::may_stand_in(StepIndex sent) {
  const std::scoped_lock lock(mutex_);
  return may_begin_ && may_begin_(sent);
}

void SiteLateness::stood_in(const ProxyRound& round) {
  const std::scoped_lock lock(mutex_);
  ++so_far_.rounds;
  if (watch_) watch_(so_far_);
  if (!std::has_single_bit(static_cast<std::uint64_t>(so_far_.rounds))) return;
  log_warning(
      "this site has not begun the round of fragment {} of step {}, {:.1f} s after {} others: with "
      "net.deadline they go on without what it gives to that round ({} so far; outer.carry says "
      "what becomes of it)",
      round.id.fragment.value(), round.id.sent.value(), in_seconds(round.late), round.others,
      so_far_.rounds);
}

bool SiteLateness::skips(StepIndex t, std::optional<StepIndex> ahead, int missed) {
  const bool too_late = ahead && t <= *ahead;
  const bool gives_first = carries_ && missed >= kMostMissed;
  if (missed >= kMostMissed && !std::exchange(told_of_pace_, true)) {
    log_warning(
        "this site was late for {} rounds in a row{}: where it is always slower than the others, "
        "give it a site.pace below 1, or all a longer net.deadline",
        missed,
        carries_ ? ", and skips steps to be in time with what it carries"
                 : "; what it had trained on is not carried along, and enters nothing");
  }
  if (too_late || gives_first) {
    const std::scoped_lock lock(mutex_);
    ++so_far_.steps_skipped;
    if (watch_) watch_(so_far_);
    catches_up_ = true;
    return true;
  }
  if (std::exchange(catches_up_, false) && std::has_single_bit(++times_)) {
    const std::int64_t skipped = so_far().steps_skipped;
    log_warning(
        "this site goes on with step {}, where the others are: it has skipped {} step{} so far, {} "
        "time{} late for a round",
        t.value(), skipped, skipped == 1 ? "" : "s", times_, times_ == 1 ? "" : "s");
  }
  return false;
}

}  // namespace isthmus::app
