// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/zmq_batch.h"

#include <algorithm>

#include "transport/links/zmq/zmq_messages.h"

namespace isthmus {
namespace {

bool send_alone(zmq::socket_t& socket, const LinkHeaderBytes& head, zmq::message_t& body) {
  return socket.send(zmq::buffer(head), zmq::send_flags::sndmore | zmq::send_flags::dontwait) &&
         socket.send(body, zmq::send_flags::dontwait);
}

/// The message is shared by the frames that came in it.
class PieceOfMessage final : public FrameStore {
 public:
  PieceOfMessage(std::shared_ptr<const zmq::message_t> message, std::span<const std::byte> bytes)
      : message_(std::move(message)), bytes_(bytes) {}
  [[nodiscard]] std::size_t size() const override { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  std::shared_ptr<const zmq::message_t> message_;
  std::span<const std::byte> bytes_;
};

}  // namespace

void ZmqBatch::clear() {
  waiting_.clear();
  bytes_ = 0;
  joined_.rebuild();
}

bool ZmqBatch::send(zmq::socket_t& socket) {
  if (empty()) return true;
  const bool one = waiting_.size() == 1;
  if (one) {
    const auto& [header, body] = waiting_.front();
    zmq::message_t part = message_of(body);
    if (!send_alone(socket, write_link_header(header, message_bytes(part)), part)) return false;
    clear();
    return true;
  }
  if (joined_.size() == 0) {
    joined_.rebuild(bytes_);
    std::span<std::byte> out(static_cast<std::byte*>(joined_.data()), joined_.size());
    for (const auto& [header, body] : waiting_) {
      const std::span<std::byte> bytes = out.subspan(kLinkHeaderBytes, body->size());
      body->copy_to(bytes);
      const LinkHeaderBytes head = write_link_header(header, bytes);
      std::ranges::copy(head, out.begin());
      out = out.subspan(kLinkHeaderBytes + bytes.size());
    }
  }
  if (!socket.send(zmq::message_t(), zmq::send_flags::sndmore | zmq::send_flags::dontwait) ||
      !socket.send(joined_, zmq::send_flags::dontwait)) {
    return false;
  }
  clear();
  return true;
}

FrameBytes kept_piece(const std::shared_ptr<const zmq::message_t>& message,
                      std::span<const std::byte> body) {
  if (body.size() < kCopyBelow || body.size() * kMostPinned < message->size()) return nullptr;
  return FrameBytes(std::make_shared<const PieceOfMessage>(message, body));
}

}  // namespace isthmus
