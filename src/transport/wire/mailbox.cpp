// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/mailbox.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

Mailbox::Mailbox(Runtime& runtime, int peers)
    : queue_(runtime.make_wait_queue()),
      lost_(static_cast<std::size_t>(peers), false),
      returns_(static_cast<std::size_t>(peers), 0) {}

void Mailbox::deliver(WorkerId from, FrameBytes frame) {
  ISTHMUS_CHECK(frame != nullptr);
  queue_->update([&] {
    const auto index = static_cast<std::size_t>(from.value());
    if (closed_ || lost_.at(index)) return;
    items_.push_back({.frame = {from, std::move(frame), returns_.at(index)}});
  });
}

void Mailbox::mark_lost(WorkerId peer) {
  queue_->update([&] {
    const auto index = static_cast<std::size_t>(peer.value());
    if (closed_ || lost_.at(index)) return;
    lost_.at(index) = true;
    items_.push_back({.frame = {peer, nullptr}});
  });
}

void Mailbox::mark_back(WorkerId peer) {
  queue_->update([&] {
    const auto index = static_cast<std::size_t>(peer.value());
    if (closed_) return;
    lost_.at(index) = false;
    ++returns_.at(index);
    items_.push_back({.frame = {peer, nullptr}, .back = true});
  });
}

void Mailbox::expect(WorkerId peer) {
  queue_->update([&] { lost_.at(static_cast<std::size_t>(peer.value())) = true; });
}

void Mailbox::close() {
  queue_->update([&] {
    closed_ = true;
    items_.clear();
  });
}

Expected<ReceivedFrame, TransportError> Mailbox::receive(TimePoint deadline) {
  std::optional<Item> taken;
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
        {TransportError::Kind::kDeadlineExceeded, WorkerId{-1}, "no frame before the deadline"});
  }
  if (closed) {
    return Unexpected<TransportError>(
        {TransportError::Kind::kClosed, WorkerId{-1}, "this endpoint has been closed"});
  }
  if (taken->frame.bytes == nullptr) {
    const WorkerId peer = taken->frame.from;
    if (taken->back) {
      return Unexpected<TransportError>(
          {TransportError::Kind::kPeerBack, peer,
           fmt::format("member {} is here, as a new process", peer.value())});
    }
    return Unexpected<TransportError>(
        {TransportError::Kind::kPeerLost, peer, fmt::format("member {} is gone", peer.value())});
  }
  return std::move(taken->frame);
}

}  // namespace isthmus
