// SPDX-License-Identifier: Apache-2.0
// A transport that counts frames by peer for a StatusBoard, and triggers fault points.
#pragma once

#include <utility>

#include "record/status_board.h"
#include "session/site/frame_fault_points.h"
#include "transport/wire/transport.h"

namespace isthmus::app {

class WatchedTransport final : public Transport {
 public:
  /// Borrows both; `board` may be null.
  WatchedTransport(Transport& below, StatusBoard* board) : below_(below), board_(board) {}

  [[nodiscard]] WorkerId self() const override { return below_.self(); }
  [[nodiscard]] int size() const override { return below_.size(); }
  void send(WorkerId to, FrameBytes frame) override {
    const std::size_t bytes = frame->size();
    if (is_armed()) points_.before(*frame);
    below_.send(to, std::move(frame));
    if (board_ != nullptr) board_->sent(to, bytes);
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    Expected<ReceivedFrame, TransportError> received = below_.receive(deadline);
    if (received && is_armed()) points_.come(*received->bytes);
    if (board_ == nullptr) {
      return received;
    }
    if (received) {
      board_->received(received->from, received->bytes->size());
    } else if (received.error().kind == TransportError::Kind::kPeerLost) {
      board_->gone(received.error().peer, received.error().what);
    }
    return received;
  }
  [[nodiscard]] std::size_t most_unused(WorkerId peer) const override {
    return below_.most_unused(peer);
  }
  void close() override { below_.close(); }

 private:
  Transport& below_;
  StatusBoard* board_;
  FrameFaultPoints points_;
};

}  // namespace isthmus::app
