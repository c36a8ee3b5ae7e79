// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of one member: a ROUTER that listens, and DEALERs that dial, each with a
// monitor. Moves messages between them and a LinkEngine. Belongs to one task, except `wake`.
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
  /// Blocks for a moment for unsent messages; not at all unless `close` was called.
  ~ZmqSockets();
  ZmqSockets(const ZmqSockets&) = delete;
  ZmqSockets& operator=(const ZmqSockets&) = delete;

  [[nodiscard]] const std::string& endpoint() const;
  /// The most connections to each peer, within the options, for which open files suffice.
  [[nodiscard]] int most_streams() const;
  /// `around`: over a relay, so that TCP's counters do not describe the path to the peer. THROWS:
  /// ConfigError for an endpoint that libzmq does not accept, SystemError when files run out; the
  /// same holds for the other calls that dial.
  void dial(WorkerId peer, const std::string& endpoint, bool around);
  /// No effect for a peer that was not dialled, or was hung up.
  void dial_more(WorkerId peer, int streams);
  void hang_up(WorkerId peer);
  /// With keys: the valid keys from now on, by member, and those of guests. A member without a key
  /// is not dialled; connections with invalid keys are ended.
  void set_keys(const std::vector<std::string>& members, const std::vector<std::string>& guests);
  /// Tries another endpoint of the peer with one extra connection, which sends nothing of its own
  /// and ends if no answer arrives for a while. One at a time; `hang_up` ends it too.
  void dial_beside(WorkerId peer, const std::string& endpoint);
  void end_beside(WorkerId peer);
  /// Since when the extra connection is open, without a break; nothing: it is not.
  [[nodiscard]] std::optional<TimePoint> beside_stands_since(WorkerId peer) const;
  /// The extra connection replaces those dialled to the peer, alone until `dial_more`, and the
  /// engine is told. REQUIRES: it is open.
  void take_over(LinkEngine& engine, WorkerId peer, bool around, TimePoint now);
  /// As LinkPort. Nothing is sent over connections that were hung up.
  [[nodiscard]] bool is_near(WorkerId peer) const;
  [[nodiscard]] bool is_within_machine(WorkerId peer) const;
  /// A connection whose first round trips were slow, on a busy machine, may prove to be near.
  void judge_again(WorkerId peer);
  bool to_stream(WorkerId peer, int stream, const LinkHeader& header, const FrameBytes& body);
  void to_connection(const ConnectionId& id, const LinkHeader& header, const FrameBytes& body);
  /// Sends the rows that have waited for more frames, where the sockets take them. Part of `wait`,
  /// `read` and `close`.
  void send_batches();

  /// Blocks until there are messages or events, or for `at_most`, or until `wake`.
  void wait(LinkEngine& engine, Duration at_most);
  /// Passes arrived messages to the engine; a limited number from each connection.
  void read(LinkEngine& engine, const std::function<TimePoint()>& now);
  /// Answers requests of invitations' holders whose answer is known by now; part of `read`.
  void answer_guests();
  /// Counters of the first `streams` connections dialled to `peer`, with the mean round trip of the
  /// first `in_use`. RETURNS: nothing when one of them is not open, or the system does not report.
  [[nodiscard]] std::optional<LinkCounters> counters(WorkerId peer, int streams, int in_use) const;
  /// Of every connection dialled to `peer`; nothing for one that is not open or does not report.
  [[nodiscard]] std::vector<std::optional<LinkCounters>> each_counter(WorkerId peer) const;
  /// Ends `wait`. Any thread, one at a time.
  void wake();
  /// Ends all connections; messages submitted before are still sent.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace isthmus
