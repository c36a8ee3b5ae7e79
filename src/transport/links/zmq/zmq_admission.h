// SPDX-License-Identifier: Apache-2.0
// Who may connect: answers ZeroMQ's question for every key that comes (ZAP,
// https://rfc.zeromq.org/spec/27), from a table. Sockets of the context that are CURVE servers of
// the domain let nobody in without its answer. Who has opened a connection is asked of the table
// again with each message, so a key that is taken out counts no more. Belongs to one task, like the
// sockets.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"

namespace isthmus {

class ZmqAdmission {
 public:
  /// Outlives the sockets that listen: where nobody can be asked, libzmq lets everybody in.
  /// Lets nobody in yet.
  explicit ZmqAdmission(zmq::context_t& context);

  /// For polling.
  [[nodiscard]] void* handle() { return socket_.handle(); }
  /// Answers what has come, a limited number. `refused`: the public key in Z85.
  void answer(TimePoint now, const std::function<void(const std::string&)>& refused);
  /// Who is let in from now on: members by place, an empty key being nobody's; and guests, each
  /// with few connections an hour.
  void set_keys(std::vector<std::string> members, const std::vector<std::string>& guests);

  /// Of a listening socket, before it binds.
  static void make_server(zmq::socket_t& socket, const LinkKeys& keys);
  /// Of a dialling one, before it connects. `peer_key`: who must answer.
  static void make_client(zmq::socket_t& socket, const LinkKeys& keys, const std::string& peer_key);
  /// The key that opened the connection that this came on.
  [[nodiscard]] static std::string key_of(zmq::message_t& message);
  /// Whose it is now.
  [[nodiscard]] std::optional<WorkerId> owner_of(const std::string& key) const;
  [[nodiscard]] bool is_guest(const std::string& key) const { return guests_.contains(key); }

 private:
  struct Guest {
    int connections = 0;  // since `first`
    TimePoint first{};
  };
  [[nodiscard]] bool lets_in(const std::string& key, TimePoint now);

  zmq::socket_t socket_;
  std::vector<std::string> member_keys_;
  std::map<std::string, Guest> guests_;
};

}  // namespace isthmus
