// SPDX-License-Identifier: Apache-2.0
// Frames that leave: when each one goes, and over which dialled connection. The farewell of a
// member that leaves goes the same way. Part of LinkEngine.
#pragma once

#include <utility>

#include "transport/links/link_peers.h"
#include "transport/links/send_budget.h"

namespace isthmus {

class LinkSending {
 public:
  explicit LinkSending(LinkPeers& all);

  /// As LinkEngine::submit.
  void submit(WorkerId to, FrameBytes frame, std::uint64_t returns);
  /// As LinkEngine::use_streams.
  void use_streams(WorkerId to, int streams);
  /// Sends what may go to this peer now.
  void pump(WorkerId rank);
  /// Sends what has waited for the budget, if that is open.
  void send_held_back(TimePoint now);
  /// Tells the peer that this member leaves, once all frames are out. Each heartbeat repeats the
  /// message until the peer has confirmed.
  void say_close(WorkerId rank);
  /// The bound on what goes out, which may change from one heartbeat to the next.
  void renew_budget(TimePoint now);
  /// Whether something waits for the budget to open.
  [[nodiscard]] bool held_back() const { return held_back_; }
  /// When the budget opens for what waits; kNever: nothing waits.
  [[nodiscard]] TimePoint goes_on() const { return held_back_ ? budget_.opens() : kNever; }

 private:
  LinkPeers& all_;
  SendBudget budget_;
  bool held_back_ = false;
  WorkerId sent_last_;  // the receiver of the last frame
};

}  // namespace isthmus
