// SPDX-License-Identifier: Apache-2.0
// Several DATA of one connection in one message of ZeroMQ (WIRE_FORMAT.md). A message costs two
// system calls at each end and a wake-up at the other, whatever its size; so frames that wait for a
// near connection go together. Over a far one a frame goes alone: it takes longer than its message
// costs, and what is more urgent would wait. Belongs to a connection; one task.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "transport/links/link_message.h"
#include "transport/wire/transport.h"

namespace isthmus {

class ZmqBatch {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 19;
  static constexpr std::size_t kMost = 32;             // DATA in one message
  static constexpr std::size_t kLeastBody = 16 << 10;  // smaller ones go alone

  [[nodiscard]] static bool suits(const LinkHeader& header, const FrameBytes& body) {
    return header.kind == LinkKind::kData && body != nullptr && body->size() >= kLeastBody;
  }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] bool fits(const FrameBytes& body) const {
    return empty() || (joined_.size() == 0 && waiting_.size() < kMost &&
                       bytes_ + kLinkHeaderBytes + body->size() <= kMostBytes);
  }
  /// REQUIRES: suits(header, body), fits(body).
  void add(const LinkHeader& header, FrameBytes body) {
    bytes_ += kLinkHeaderBytes + body->size();
    waiting_.emplace_back(header, std::move(body));
  }
  void clear();
  /// Sends what waits, if anything does. RETURNS: false when the socket takes no message now.
  [[nodiscard]] bool send(zmq::socket_t& socket);

 private:
  std::vector<std::pair<LinkHeader, FrameBytes>> waiting_;
  std::size_t bytes_ = 0;
  zmq::message_t joined_;  // of those that wait, once the socket has refused it
};

/// `body`, of one DATA in `message`, as a frame that keeps the message; null if it is so small that
/// a copy is cheaper.
[[nodiscard]] FrameBytes kept_piece(const std::shared_ptr<const zmq::message_t>& message,
                                    std::span<const std::byte> body);

}  // namespace isthmus
