// SPDX-License-Identifier: Apache-2.0
// Admission of connections: answers ZeroMQ's request for every key (ZAP,
// https://rfc.zeromq.org/spec/27) from a table. Sockets of the context that are CURVE servers of
// the domain admit no connection without its answer. The owner of a connection is looked up again
// for each message, so a removed key is invalid at once. Belongs to one task, like the sockets.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"
#include "transport/links/zmq/zmq_polled.h"

namespace isthmus {

class ZmqAdmission {
 public:
  /// Must outlive the listening sockets: without a handler libzmq admits every connection. Admits
  /// none yet. THROWS: SystemError when this libzmq has no encryption.
  explicit ZmqAdmission(zmq::context_t& context);

  /// For waiting.
  [[nodiscard]] zmq::socket_t& socket() { return socket_; }
  [[nodiscard]] ZmqPolled& polled() { return polled_; }
  /// Answers requests that have arrived, a limited number. `refused`: the public key in Z85.
  void answer(TimePoint now, const std::function<void(const std::string&)>& refused);
  /// The keys to admit from now on: of members by place, an empty key admits none; and of guests,
  /// each with few connections an hour.
  void set_keys(std::vector<std::string> members, const std::vector<std::string>& guests);

  /// For a listening socket, before it binds.
  static void make_server(zmq::socket_t& socket, const LinkKeys& keys);
  /// For a dialling socket, before it connects. `peer_key`: of the expected peer.
  static void make_client(zmq::socket_t& socket, const LinkKeys& keys, const std::string& peer_key);
  /// The key that opened the connection of this message.
  [[nodiscard]] static std::string key_of(zmq::message_t& message);
  /// The present owner of the key.
  [[nodiscard]] std::optional<WorkerId> owner_of(const std::string& key) const;
  [[nodiscard]] bool is_guest(const std::string& key) const { return guests_.contains(key); }

 private:
  struct Guest {
    int connections = 0;  // since `first`
    TimePoint first{};
  };
  [[nodiscard]] bool lets_in(const std::string& key, TimePoint now);

  zmq::socket_t socket_;
  ZmqPolled polled_;
  std::vector<std::string> member_keys_;
  std::map<std::string, Guest> guests_;
};

}  // namespace isthmus
