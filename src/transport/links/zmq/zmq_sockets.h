// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of one member: a ROUTER that listens, and DEALERs that dial, each with a
// monitor. Moves messages between them and a LinkEngine. Belongs to one task, but for `wake`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/links/link_engine.h"
#include "transport/links/link_gauge.h"
#include "transport/links/network_transport.h"

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
  /// The most connections to each peer for which there are open files, of those it may have.
  [[nodiscard]] int most_streams() const;
  /// `around`: by way of a relay, so that what TCP says of the connections is not of the peer.
  void dial(WorkerId peer, const std::string& endpoint, bool around);
  /// Where something has been dialled and not hung up. THROWS: SystemError for want of a file.
  void dial_more(WorkerId peer, int streams);
  void hang_up(WorkerId peer);
  /// With keys: whose count from now on, by member, and those of guests. Where a member has none
  /// nothing is dialled; connections opened with keys that count no more are ended.
  void set_keys(const std::vector<std::string>& members, const std::vector<std::string>& guests);
  /// Tries another endpoint of the peer by one connection, which says nothing of itself and is
  /// broken off where it brings no answer for a while. One at a time; `hang_up` ends it too.
  void dial_beside(WorkerId peer, const std::string& endpoint);
  void end_beside(WorkerId peer);
  /// Since when it stands, without a break; nothing: it does not.
  [[nodiscard]] std::optional<TimePoint> beside_stands_since(WorkerId peer) const;
  /// It takes the place of those dialled to the peer, alone until `dial_more`, and the engine is
  /// told. REQUIRES: it stands.
  void take_over(LinkEngine& engine, WorkerId peer, bool around, TimePoint now);
  /// As LinkPort. Over what has been hung up nothing goes.
  bool to_stream(WorkerId peer, int stream, const LinkHeader& header, const FrameBytes& body);
  void to_connection(const ConnectionId& id, const LinkHeader& header, const FrameBytes& body);

  /// Blocks until there is news, or for `at_most`, or until `wake`.
  void wait(LinkEngine& engine, Duration at_most);
  /// Feeds the engine with what has come; a limited number of messages of each connection.
  void read(LinkEngine& engine, const std::function<TimePoint()>& now);
  /// What those who hold invitations have asked, where it is known by now; part of `read`.
  void answer_guests();
  /// Of the first `streams` connections dialled to `peer`; of the first `in_use` the mean round
  /// trip. RETURNS: nothing when one of them does not stand, or the system does not tell.
  [[nodiscard]] std::optional<LinkCounters> counters(WorkerId peer, int streams, int in_use) const;
  /// Of every connection dialled to `peer`; nothing for one that does not stand or tell.
  [[nodiscard]] std::vector<std::optional<LinkCounters>> each_counter(WorkerId peer) const;
  /// Ends `wait`. Any thread, one at a time.
  void wake();
  /// Ends all connections; what has been said last still goes out.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace isthmus
