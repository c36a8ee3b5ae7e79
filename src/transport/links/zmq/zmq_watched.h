// SPDX-License-Identifier: Apache-2.0
// A socket of ZeroMQ with the news of its connections, and how all sockets of links are made. For
// the files that know ZeroMQ. Options and their reasons: README.md.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "isthmus/types.h"
#include "transport/links/network_transport.h"

namespace isthmus {

[[nodiscard]] inline int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

/// For `address`. THROWS: SystemError for want of a file.
[[nodiscard]] zmq::socket_t new_socket(zmq::context_t& context, zmq::socket_type type,
                                       const std::string& address, const MemberOptions& options);

/// ZeroMQ's own thread writes the news and waits for a reader for ever, with all sockets of the
/// context, so it must end before the reader does.
class Watched {
 public:
  /// `place`: of the news, a name of its own. THROWS: SystemError for want of a file.
  Watched(zmq::context_t& context, zmq::socket_t plain, std::string place);
  /// From now on there is news. Call once, when someone reads it. THROWS: SystemError likewise.
  void watch(int events);
  ~Watched() { (void)zmq_socket_monitor(socket.handle(), nullptr, 0); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  zmq::socket_t monitor;
  const std::string address;  // of the news
  bool watched = false;
  bool stands = false;               // a dialled connection, as far as the news says
  int descriptor = -1;               // of its TCP connection, which ZeroMQ owns and may have closed
  std::optional<TimePoint> ended{};  // ... which ZeroMQ does not try again
  zmq::socket_t socket;              // destroyed first
};

}  // namespace isthmus
