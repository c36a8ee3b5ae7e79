// SPDX-License-Identifier: Apache-2.0
// A row: several DATA of one connection in one message of ZeroMQ (WIRE_FORMAT.md). Every message
// costs two system calls at each end and a wake-up, whatever its size, so frames that wait for a
// near connection go together. The row ends after as many bytes as the connection delivers in a
// short time: more urgent words wait behind it. Each dialled connection owns one ZmqBatch, and only
// the task of the sockets uses it.
#pragma once

#include <algorithm>
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
                       bytes_ + kLinkHeaderBytes + body->size() <= limit_);
  }
  /// Bounds the bytes of the row that begins, by kMostBytes too. One DATA goes whatever its size.
  /// REQUIRES: empty().
  void begin(double most_bytes) {
    limit_ = static_cast<std::size_t>(std::min(most_bytes, static_cast<double>(kMostBytes)));
  }
  /// REQUIRES: suits(header, body), fits(body).
  void add(const LinkHeader& header, FrameBytes body) {
    bytes_ += kLinkHeaderBytes + body->size();
    waiting_.emplace_back(header, std::move(body));
  }
  void clear();
  /// Sends the DATA that wait, if there are any. RETURNS: false when the socket takes no message
  /// now.
  [[nodiscard]] bool send(zmq::socket_t& socket);

 private:
  std::vector<std::pair<LinkHeader, FrameBytes>> waiting_;
  std::size_t bytes_ = 0;
  std::size_t limit_ = 0;
  zmq::message_t joined_;  // the row of the DATA that wait, once the socket has refused the row
};

/// A kept frame pins its whole message, and the window of the link counts the frame alone. So a
/// message is at most this many times as large as each frame that keeps it.
inline constexpr std::size_t kMostPinned = 8;

/// `body`, of one DATA in `message`, as a frame that keeps the message. RETURNS: null where the
/// caller copies: a small body is cheaper copied, and one of a much larger message pins too much.
[[nodiscard]] FrameBytes kept_piece(const std::shared_ptr<const zmq::message_t>& message,
                                    std::span<const std::byte> body);

}  // namespace isthmus
