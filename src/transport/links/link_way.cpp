// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_way.h"

#include <algorithm>

namespace isthmus {
namespace {

// A connection that breaks is back within a few round trips, mostly before that.
constexpr Duration kBroken = std::chrono::milliseconds(250);
// While members come together they find each other the direct way, which may take a retry longer.
constexpr Duration kNewcomer = std::chrono::seconds(2);
// Of dead_after: the direct way must stand that long before it is taken again.
constexpr int kFirstTrial = 3;
constexpr Duration kLongestTrial = std::chrono::hours(1);
// In units of the trial: a pair that needs a detour again sooner has returned too early.
constexpr int kHeld = 10;

}  // namespace

LinkWay::LinkWay(Duration dead_after)
    : patience_(dead_after / 2), first_trial_(kFirstTrial * dead_after), trial_(first_trial_) {}

void LinkWay::turn(TimePoint now) {
  around_ = !around_;
  if (!around_) {
    returned_ = now;
  } else if (returned_) {
    const bool held = now - *returned_ >= kHeld * trial_;
    trial_ = held ? first_trial_ : std::min(2 * trial_, std::max(first_trial_, kLongestTrial));
  }
  turned_ = now;
  begin();
}

LinkWay::Act LinkWay::observe(TimePoint now, const LinkSigns& signs) {
  const TimePoint good = std::min(signs.answered, signs.stalled_since.value_or(signs.answered));
  const bool silent = now - good >= patience_;
  const bool broken = signs.joined && signs.down_since && now - *signs.down_since >= kBroken;
  // A new way has as long as a way that falls silent; otherwise two bad ways would take turns
  // before either stood. But a direct way that breaks has stood, and less time is left until the
  // peer counts as gone, a peer that the detour served until just now.
  const bool settled = !turned_ || now - *turned_ >= patience_;
  const bool trouble = (silent && settled) || (broken && (settled || !around_));
  if (!trouble && !around_) {
    if (!tries_) return Act::kNone;
    tries_ = false;
    return Act::kLeaveOther;
  }
  if (!tries_) {
    tries_ = true;
    return Act::kTryOther;
  }
  if (!signs.other_stands_since) {
    // The relay may have died without a word, and another one be there.
    if (!around_ || !signs.joined || !silent || !settled) return Act::kNone;
    begin();
    return Act::kDialAnew;
  }
  const Duration needed = !trouble ? trial_ : signs.joined ? Duration{0} : kNewcomer;
  if (now - *signs.other_stands_since < needed) return Act::kNone;
  turn(now);
  return Act::kTakeOther;
}

}  // namespace isthmus
