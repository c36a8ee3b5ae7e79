// SPDX-License-Identifier: Apache-2.0
// One member's queue of incoming frames and of news about lost peers, in the order of arrival.
// Shared by the transports that live in one process. Any task may call it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/transport.h"

namespace isthmus {

class Mailbox {
 public:
  /// `runtime` is borrowed and outlives the box; `peers`: members of the group, owner included.
  Mailbox(Runtime& runtime, int peers);

  /// Appends a frame. Dropped when the box is closed or `from` has been marked lost.
  void deliver(Rank from, FrameBytes frame);
  /// Tells the owner, once and after the frames delivered before, that `peer` is gone.
  void mark_lost(Rank peer);
  /// From now on `receive` returns kClosed.
  void close();
  /// As Transport::receive.
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline);
  [[nodiscard]] WaitQueue& queue() { return *queue_; }

 private:
  std::unique_ptr<WaitQueue> queue_;
  // All below belong to `queue_`'s lock.
  std::deque<ReceivedFrame> items_;  // no bytes: the news that `from` is lost
  std::vector<bool> lost_;
  bool closed_ = false;
};

}  // namespace isthmus
