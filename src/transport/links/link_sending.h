// SPDX-License-Identifier: Apache-2.0
// Outgoing frames: when each one is sent, and over which dialled connection; also the farewell of a
// leaving member. Part of LinkEngine.
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
  /// Sends the frames that may go to this peer now.
  void pump(WorkerId rank);
  /// Sends frames that have waited for the send budget, if it is open.
  void send_held_back(TimePoint now);
  /// Tells the peer that this member leaves, once all frames are out. Each heartbeat repeats the
  /// message until the peer has confirmed.
  void say_close(WorkerId rank);
  /// Renews the send budget, whose rate may change at every heartbeat.
  void renew_budget(TimePoint now);
  /// Whether frames wait for the send budget.
  [[nodiscard]] bool held_back() const { return held_back_; }
  /// When the send budget opens for waiting frames; kNever: none waits.
  [[nodiscard]] TimePoint goes_on() const { return held_back_ ? budget_.opens() : kNever; }

 private:
  /// How many streams, from the first on, frames to the peer go over now.
  [[nodiscard]] std::size_t streams_to_use(const LinkPeer& peer, bool within_machine) const;

  LinkPeers& all_;
  SendBudget budget_;
  bool held_back_ = false;
  WorkerId sent_last_;  // the receiver of the last frame
};

}  // namespace isthmus
