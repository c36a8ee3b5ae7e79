// SPDX-License-Identifier: Apache-2.0
// Who may connect: answers ZeroMQ's question for every key that comes (ZAP,
// https://rfc.zeromq.org/spec/27), from a fixed list. Sockets of the context that are CURVE servers
// of the domain let nobody in without its answer. Belongs to one task, like the sockets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "transport/network_transport.h"

namespace isthmus {

class ZmqAdmission {
 public:
  /// Outlives the sockets that listen: where nobody can be asked, libzmq lets everybody in.
  ZmqAdmission(zmq::context_t& context, std::vector<std::string> member_keys);

  /// For polling.
  [[nodiscard]] void* handle() { return socket_.handle(); }
  /// Answers what has come, a limited number. `refused`: the public key in Z85.
  void answer(const std::function<void(const std::string&)>& refused);

  /// Of a listening socket, before it binds.
  static void make_server(zmq::socket_t& socket, const LinkKeys& keys);
  /// Of a dialling one, before it connects. `peer_key`: who must answer.
  static void make_client(zmq::socket_t& socket, const LinkKeys& keys, const std::string& peer_key);
  /// Whose key opened the connection that this came on.
  [[nodiscard]] static std::optional<Rank> owner_of(zmq::message_t& message);

 private:
  zmq::socket_t socket_;
  const std::vector<std::string> member_keys_;
};

}  // namespace isthmus
