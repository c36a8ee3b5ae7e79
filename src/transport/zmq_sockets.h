// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of one member: a ROUTER that listens, and DEALERs that dial, each with a
// monitor. Moves messages between them and a LinkEngine. Belongs to one task, but for `wake`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/link_engine.h"
#include "transport/link_gauge.h"
#include "transport/network_transport.h"

namespace isthmus {

class ZmqSockets {
 public:
  /// Listens. THROWS: SystemError when the address cannot be bound.
  explicit ZmqSockets(const MemberOptions& options);
  /// Blocks for a moment for what has not gone out yet; at once unless `close` was called.
  ~ZmqSockets();
  ZmqSockets(const ZmqSockets&) = delete;
  ZmqSockets& operator=(const ZmqSockets&) = delete;

  [[nodiscard]] const std::string& endpoint() const;
  void dial(Rank peer, const std::string& endpoint);
  void hang_up(Rank peer);
  /// As LinkPort.
  bool to_stream(Rank peer, int stream, const LinkHeader& header, const FrameBytes& body);
  void to_connection(const ConnectionId& id, const LinkHeader& header, const FrameBytes& body);

  /// Blocks until there is news, or for `at_most`, or until `wake`.
  void wait(LinkEngine& engine, Duration at_most);
  /// Feeds the engine with what has come; a limited number of messages of each connection.
  void read(LinkEngine& engine, const std::function<TimePoint()>& now);
  /// Of all connections dialled to `peer`; of the first `in_use` of them the mean round trip.
  /// RETURNS: nothing when none stands, or the system does not tell.
  [[nodiscard]] std::optional<LinkCounters> counters(Rank peer, int in_use) const;
  /// Ends `wait`. Any thread, one at a time.
  void wake();
  /// Ends all connections; what has been said last still goes out.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace isthmus
