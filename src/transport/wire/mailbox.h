// SPDX-License-Identifier: Apache-2.0
// One member's queue of incoming frames and of news about peers that are lost or return, in order
// of arrival. Shared by the transports in one process. Any task.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/wire/transport.h"

namespace isthmus {

class Mailbox {
 public:
  /// `runtime` is borrowed and outlives the box; `peers`: members of the group, including the
  /// owner.
  Mailbox(Runtime& runtime, int peers);

  /// Appends a frame. Dropped when the box is closed or `from` is marked lost.
  void deliver(WorkerId from, FrameBytes frame);
  /// Tells the owner, once and after the frames delivered before, that `peer` is lost.
  void mark_lost(WorkerId peer);
  /// Tells the owner that `peer` has returned: later frames come after this news.
  void mark_back(WorkerId peer);
  /// `peer` is absent at first: its frames are dropped before `mark_back`. No news for the owner.
  void expect(WorkerId peer);
  /// From now on `receive` returns kClosed.
  void close();
  /// As Transport::receive.
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline);
  [[nodiscard]] WaitQueue& queue() { return *queue_; }

 private:
  std::unique_ptr<WaitQueue> queue_;
  // All below belong to `queue_`'s lock.
  struct Item {
    ReceivedFrame frame;  // empty: news about `from`
    bool back = false;    // it has returned; otherwise it is lost
  };
  std::deque<Item> items_;
  std::vector<bool> lost_;
  std::vector<std::uint64_t> returns_;  // by peer
  bool closed_ = false;
};

}  // namespace isthmus
