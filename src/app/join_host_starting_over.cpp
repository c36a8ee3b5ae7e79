// SPDX-License-Identifier: Apache-2.0
// Newcomers that cannot go on with what they were given.
#include <fmt/format.h>

#include "app/join_host.h"
#include "core/log.h"

namespace isthmus::app {
namespace {

constexpr int kStartsOver = 2;  // of one that falls behind

}  // namespace

// With a state of now, and fewer rounds to replay, it may catch up.
void JoinHost::fall_behind() {
  const bool again = ++fell_behind_[joiner_] <= kStartsOver;
  const std::string why = fmt::format(
      "{} bytes of results are on their way to it or wait there, and {} is the most: it takes in "
      "less "
      "than the run makes{}",
      sent_ - taken_, most_under_way_,
      again ? ", and starts over"
            : "; come back over a faster link, or with a higher net.serve, a longer outer.H or a "
              "smaller codec");
  log_warning("site {} cannot join: {}", options_.sites[static_cast<std::size_t>(joiner_.value())],
              why);
  turn_away(joiner_, why, again);
  if (!again) fell_behind_.erase(joiner_);
  source_.forget(joiner_);
  kept_.reset();
  phase_ = Phase::kNobody;
  next();
}

// The state may be of such a step too, or that of the one that was kept.
void JoinHost::gone_back(StepIndex t) {
  const std::scoped_lock lock(mutex_);
  if (kept_ && kept_->away) source_.forget(kept_->newcomer);
  kept_.reset();
  const bool misled = phase_ == Phase::kReplays || phase_ == Phase::kAgreeing ||
                      (phase_ == Phase::kAdmitted && t.value() < admitted_after_);
  if (!misled) return;
  const std::string why = fmt::format(
      "a site was lost, and the run has gone back to step {}, its last committed one: it starts "
      "over",
      t.value());
  log_warning("site {} cannot join: {}", options_.sites[static_cast<std::size_t>(joiner_.value())],
              why);
  turn_away(joiner_, why, true);
  source_.forget(joiner_);
  phase_ = Phase::kNobody;
  next();
}

}  // namespace isthmus::app
