// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/zmq_watched.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "isthmus/errors.h"
#include "transport/links/link_message.h"

namespace isthmus {
namespace {

constexpr int kHandshakeMs = 5000;  // for whoever connects and says nothing
constexpr Duration kLongestConnect = std::chrono::seconds(2);

zmq::socket_t open_socket(zmq::context_t& context, zmq::socket_type type) {
  try {
    return {context, type};
  } catch (const zmq::error_t& error) {
    throw SystemError(fmt::format(
        "no socket for another link: {}; raise ulimit -n, or set fewer net.streams", error.what()));
  }
}

}  // namespace

zmq::socket_t new_socket(zmq::context_t& context, zmq::socket_type type, const std::string& address,
                         const MemberOptions& options) {
  zmq::socket_t socket = open_socket(context, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxLinkBody));
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::tcp_maxrt, milliseconds(options.dead_after));
  // An attempt that nobody answers leaves time for another one before the peer counts as gone.
  socket.set(zmq::sockopt::connect_timeout,
             milliseconds(std::min<Duration>(kLongestConnect, options.gone_after * 3 / 4)));
  socket.set(zmq::sockopt::ipv6, address.find('[') != std::string::npos);
  return socket;
}

Watched::Watched(zmq::context_t& context, zmq::socket_t plain, std::string place)
    : monitor(open_socket(context, zmq::socket_type::pair)),
      address(std::move(place)),
      socket(std::move(plain)),
      ready(socket),
      news(monitor) {
  monitor.set(zmq::sockopt::linger, 0);
  monitor.set(zmq::sockopt::rcvhwm, 0);  // whoever writes the news never waits
}

void Watched::watch(int events) {
  if (zmq_socket_monitor(socket.handle(), address.c_str(), events) != 0) {
    throw SystemError(
        fmt::format("no monitor of a socket: {}; raise ulimit -n, or set fewer "
                    "net.streams",
                    zmq_strerror(zmq_errno())));
  }
  monitor.connect(address);
  watched = true;
}

}  // namespace isthmus
