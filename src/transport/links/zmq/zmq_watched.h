// SPDX-License-Identifier: Apache-2.0
// A ZeroMQ socket with the events of its connections, and the creation of all sockets of links. For
// the files that use ZeroMQ. Options and their reasons: README.md.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "isthmus/types.h"
#include "transport/links/network_transport.h"
#include "transport/links/zmq/zmq_batch.h"
#include "transport/links/zmq/zmq_polled.h"

namespace isthmus {

[[nodiscard]] inline int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

/// For `address`. THROWS: SystemError when files run out.
[[nodiscard]] zmq::socket_t new_socket(zmq::context_t& context, zmq::socket_type type,
                                       const std::string& address, const MemberOptions& options);

/// ZeroMQ's own thread writes the events, and blocks forever without a reader, together with all
/// sockets of the context; so the monitor must end before its reader.
class Watched {
 public:
  /// `place`: a unique name for the events. THROWS: SystemError when files run out.
  Watched(zmq::context_t& context, zmq::socket_t plain, std::string place);
  /// Starts the events. Call once, when a reader exists. THROWS: SystemError likewise.
  void watch(int events);
  ~Watched() { (void)zmq_socket_monitor(socket.handle(), nullptr, 0); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  zmq::socket_t monitor;
  const std::string address;  // of the news
  bool watched = false;
  bool stands = false;               // a dialled connection is open, according to the events
  int descriptor = -1;               // of its TCP connection, owned by ZeroMQ and possibly closed
  bool near = false;                 // ... and its round trip is short
  bool within_machine = false;       // ... and its other end is on this machine
  std::optional<TimePoint> ended{};  // ... and ZeroMQ does not reconnect it
  zmq::socket_t socket;              // destroyed first
  ZmqPolled ready;                   // of the socket
  ZmqPolled news;                    // of the monitor
  ZmqBatch batch;                    // the row of a near connection, not sent yet
};

}  // namespace isthmus
