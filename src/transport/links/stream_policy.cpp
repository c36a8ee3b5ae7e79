// SPDX-License-Identifier: Apache-2.0
#include "transport/links/stream_policy.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace isthmus {

int StreamPolicy::observe(const LinkCounters& counted, bool waited) {
  if (!begin_ || counted.segments < begin_->segments || counted.retransmits < begin_->retransmits ||
      counted.busy < begin_->busy) {
    begin_ = counted;
    waited_ = false;
    return streams_;
  }
  waited_ = waited_ || waited;
  const std::uint64_t sent = counted.segments - begin_->segments;
  const std::uint64_t enough = kSegmentsEach * static_cast<std::uint64_t>(streams_);
  if (sent < std::max(kSegments, enough)) {
    return streams_;
  }
  const std::uint64_t repeated = std::min(sent, counted.retransmits - begin_->retransmits);
  const double busy = in_seconds(counted.busy - begin_->busy);
  begin_ = counted;
  if (std::exchange(settling_, false)) {
    waited_ = false;
    return streams_;
  }
  const bool lossy =
      repeated >= kRepeated && static_cast<double>(repeated) > kLossy * static_cast<double>(sent);
  // All connections are busy at the same time, so together they bring a multiple of one
  // connection's rate.
  const double rate = busy > 0 ? streams_ * static_cast<double>(sent - repeated) / busy : 0;
  return decide(lossy, std::exchange(waited_, false), rate, counted.congestion == "bbr");
}

int StreamPolicy::decide(bool lossy, bool waited, double rate, bool loss_blind) {
  if (tried_ && waited) {  // with nothing to send it shows nothing
    const auto tried = std::exchange(tried_, std::nullopt);
    if (rate < kPays * tried->rate) {
      hold_ = std::exchange(next_hold_, std::min(2 * next_hold_, kLongestHold));
      return change_to(tried->before);
    }
    next_hold_ = kFirstHold;
  }
  hold_ = std::max(hold_ - 1, 0);
  calm_ = lossy ? 0 : calm_ + 1;
  if (lossy && waited && hold_ == 0 && streams_ < most_ && !loss_blind) {
    tried_ = Tried{.before = streams_, .rate = rate};
    return change_to(std::min(2 * streams_, most_));
  }
  if (calm_ >= kCalm && streams_ > fewest_) {
    tried_.reset();
    return change_to(std::max(streams_ / 2, fewest_));
  }
  return streams_;
}

int StreamPolicy::change_to(int streams) {
  streams_ = streams;
  calm_ = 0;
  settling_ = true;
  begin_.reset();  // the counters are of other connections from now on
  return streams_;
}

}  // namespace isthmus
