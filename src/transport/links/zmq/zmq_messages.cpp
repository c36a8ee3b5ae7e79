// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/zmq_messages.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

namespace isthmus {
namespace {

/// Lends a frame to ZeroMQ, whose thread gives it back. The flag orders the two threads for tools
/// that cannot see ZeroMQ's own ordering.
struct Lent {
  FrameBytes frame;
  std::atomic<bool> ready{false};
};
void give_back(void*, void* hint) {
  auto* lent = static_cast<Lent*>(hint);
  (void)lent->ready.load(std::memory_order_acquire);
  delete lent;  // NOLINT(cppcoreguidelines-owning-memory)
}

/// The bytes of big messages do not move with their handle.
class KeptMessage final : public FrameStore {
 public:
  explicit KeptMessage(zmq::message_t message) : message_(std::move(message)) {}
  [[nodiscard]] std::size_t size() const override { return message_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const override {
    return message_bytes(message_);
  }

 private:
  zmq::message_t message_;
};

}  // namespace

std::span<const std::byte> message_bytes(const zmq::message_t& message) {
  return {static_cast<const std::byte*>(message.data()), message.size()};
}

zmq::message_t message_of(const FrameBytes& body) {
  if (body == nullptr) return {};
  if (body->size() < kCopyBelow || body->in_pieces()) {
    zmq::message_t copy(body->size());
    body->copy_to({static_cast<std::byte*>(copy.data()), copy.size()});
    return copy;
  }
  auto* lent = new Lent{.frame = body};  // NOLINT(cppcoreguidelines-owning-memory)
  lent->ready.store(true, std::memory_order_release);
  // ZeroMQ takes mutable memory and writes nothing into a message to be sent.
  return {const_cast<std::byte*>(body->data()), body->size(), give_back, lent};
}

FrameBytes kept_message(zmq::message_t& message) {
  if (message.size() < kCopyBelow) return nullptr;
  return FrameBytes(std::make_shared<const KeptMessage>(std::move(message)));
}

std::optional<std::vector<zmq::message_t>> next_message(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  while (true) {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) {
      return std::nullopt;
    }
    const bool more = part.more();
    if (parts.size() < 3) parts.push_back(std::move(part));
    if (!more) return parts;
  }
}

std::optional<News> next_event(zmq::socket_t& monitor) {
  const auto parts = next_message(monitor);
  News news;
  if (!parts || (*parts)[0].size() < sizeof news.kind + sizeof news.value) {
    return std::nullopt;
  }
  const auto* bytes = static_cast<const std::byte*>((*parts)[0].data());
  std::memcpy(&news.kind, bytes, sizeof news.kind);
  std::memcpy(&news.value, bytes + sizeof news.kind, sizeof news.value);
  return news;
}

}  // namespace isthmus
