// SPDX-License-Identifier: Apache-2.0
// ZeroMQ's messages as the links use them: frames lent and kept without a copy, whole multipart
// messages, events of a monitor. For the files that use ZeroMQ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include <zmq.hpp>

#include "transport/wire/transport.h"

namespace isthmus {

inline constexpr std::size_t kCopyBelow = 4096;  // bytes: cheaper copied than lent or kept

[[nodiscard]] std::span<const std::byte> message_bytes(const zmq::message_t& message);

/// A large contiguous frame is lent to ZeroMQ, any other one copied. Null: an empty message.
[[nodiscard]] zmq::message_t message_of(const FrameBytes& body);

/// A frame whose bytes stay in ZeroMQ's memory. Null, with `message` unchanged, if it is so small
/// that a copy is cheaper.
[[nodiscard]] FrameBytes kept_message(zmq::message_t& message);

/// All parts of the next message, or nothing. Parts beyond the third are dropped.
[[nodiscard]] std::optional<std::vector<zmq::message_t>> next_message(zmq::socket_t& socket);

struct News {
  std::uint16_t kind = 0;  // ZMQ_EVENT_...
  std::uint32_t value = 0;
};
[[nodiscard]] std::optional<News> next_event(zmq::socket_t& monitor);

}  // namespace isthmus
