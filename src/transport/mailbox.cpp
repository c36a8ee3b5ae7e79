// SPDX-License-Identifier: Apache-2.0
#include "transport/mailbox.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/check.h"

namespace isthmus {

Mailbox::Mailbox(Runtime& runtime, int peers)
    : queue_(runtime.make_wait_queue()), lost_(static_cast<std::size_t>(peers), false) {}

void Mailbox::deliver(Rank from, FrameBytes frame) {
  ISTHMUS_CHECK(frame != nullptr);
  queue_->update([&] {
    if (closed_ || lost_.at(static_cast<std::size_t>(from.value()))) return;
    items_.push_back({from, std::move(frame)});
  });
}

void Mailbox::mark_lost(Rank peer) {
  queue_->update([&] {
    const auto index = static_cast<std::size_t>(peer.value());
    if (closed_ || lost_.at(index)) return;
    lost_.at(index) = true;
    items_.push_back({peer, nullptr});
  });
}

void Mailbox::close() {
  queue_->update([&] {
    closed_ = true;
    items_.clear();
  });
}

Expected<ReceivedFrame, TransportError> Mailbox::receive(TimePoint deadline) {
  std::optional<ReceivedFrame> taken;
  bool closed = false;
  // The item is taken inside the predicate, so no second receiver can take it between.
  const auto ready = [&] {
    if (taken) return true;
    closed = closed_;
    if (closed) return true;
    if (items_.empty()) return false;
    taken = std::move(items_.front());
    items_.pop_front();
    return true;
  };
  if (!queue_->wait(ready, deadline)) {
    return Unexpected<TransportError>(
        {TransportError::Kind::kDeadlineExceeded, Rank{-1}, "no frame before the deadline"});
  }
  if (closed) {
    return Unexpected<TransportError>(
        {TransportError::Kind::kClosed, Rank{-1}, "this endpoint has been closed"});
  }
  if (taken->bytes == nullptr) {
    return Unexpected<TransportError>({TransportError::Kind::kPeerLost, taken->from,
                                       fmt::format("member {} is gone", taken->from.value())});
  }
  return *std::move(taken);
}

}  // namespace isthmus
