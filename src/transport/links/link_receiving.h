// SPDX-License-Identifier: Apache-2.0
// Frames that arrive: they are put in order, handed to the owner, and acknowledged when the owner
// has taken them. Part of LinkEngine.
#pragma once

#include "transport/links/link_connections.h"
#include "transport/links/link_peers.h"

namespace isthmus {

class LinkReceiving {
 public:
  LinkReceiving(LinkPeers& all, LinkConnections& connections)
      : all_(all), connections_(connections) {}

  /// Takes frame `number` of the link. RETURNS: false when the frame exceeds the window.
  [[nodiscard]] bool take_frame(WorkerId from, std::uint64_t number, FrameBytes frame);
  /// Hands out the frames that arrived before the peer had joined.
  void hand_out_early(WorkerId from);
  /// The owner has taken a frame of that size.
  void count_taken(WorkerId from, std::size_t frame_bytes);
  /// The owner sends some peer a frame of that size: a word acknowledges what was taken from all.
  void says(std::size_t frame_bytes);

 private:
  void hand_out(WorkerId from, FrameBytes frame);

  LinkPeers& all_;
  LinkConnections& connections_;
};

}  // namespace isthmus
