// SPDX-License-Identifier: Apache-2.0
// What one ZeroMQ socket is ready for, as it was last asked. For the files that use ZeroMQ.
//
// Asking a socket costs a system call, and a member has 16 sockets a peer, of which few are ready
// at a time. The descriptor that ZeroMQ gives for a socket is ready when the socket has something
// to take in, and tells that only once; so a socket is asked when its descriptor is ready, and
// after everything that was done with it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <zmq.hpp>

namespace isthmus {

class ZmqPolled {
 public:
  explicit ZmqPolled(const zmq::socket_t& socket) : descriptor_(socket.get(zmq::sockopt::fd)) {}

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Something was sent, received or asked, so the socket may have taken something in.
  void touch() { touched_ = true; }
  [[nodiscard]] bool touched() const { return touched_; }
  void ask(zmq::socket_t& socket) {
    int events = 0;
    std::size_t size = sizeof events;
    while (zmq_getsockopt(socket.handle(), ZMQ_EVENTS, &events, &size) != 0) {
      if (zmq_errno() != EINTR) throw zmq::error_t();  // a signal came in between
    }
    readable_ = (events & ZMQ_POLLIN) != 0;
    writable_ = (events & ZMQ_POLLOUT) != 0;
    touched_ = false;
  }
  [[nodiscard]] bool readable() const { return readable_; }
  [[nodiscard]] bool writable() const { return writable_; }

 private:
  int descriptor_;
  bool touched_ = true;
  bool readable_ = false;
  bool writable_ = false;
};

}  // namespace isthmus
