// SPDX-License-Identifier: Apache-2.0
// The interface through which a LinkEngine acts: the connections of one member, its queue of
// frames, its log. ZmqTransport implements it over sockets; tests implement it without any.
#pragma once

#include <string>
#include <vector>

#include "transport/links/link_message.h"
#include "transport/links/network_transport.h"
#include "transport/wire/loss_cause.h"

namespace isthmus {

/// Names an accepted connection. An id is unique while the process lives.
using ConnectionId = std::string;

/// Why a connection was not established, as far as this end can tell.
enum class HandshakeFault {
  kHungUp,        // no reason given: a dialler also sees this when the listener has the wrong key
  kMechanism,     // one end has keys, the other has none
  kKeyRefused,    // the listener does not know the dialler's key
  kWrongAddress,  // the dialler expects another key than the listener's
  kOther,
};

class LinkPort {
 public:
  virtual ~LinkPort() = default;
  /// Sends over a dialled connection. RETURNS: false when the connection takes nothing now.
  virtual bool to_stream(WorkerId peer, int stream, const LinkHeader& header, FrameBytes body) = 0;
  /// Whether all connections dialled to the peer have a short round trip (MemberOptions::far).
  [[nodiscard]] virtual bool is_near(WorkerId /*peer*/) const { return false; }
  /// Whether, besides, the peer is on this machine and no rate is set for what is sent.
  [[nodiscard]] virtual bool is_within_machine(WorkerId /*peer*/) const { return false; }
  /// Sends over an accepted connection. The message may be dropped.
  virtual void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) = 0;
  /// Appends to the member's receive queue.
  virtual void deliver(WorkerId from, FrameBytes frame) = 0;
  /// News for the member: the peer is lost, or has joined as a new process. The two calls
  /// alternate.
  virtual void lost(WorkerId peer, LossCause cause, const std::string& why) = 0;
  virtual void back(WorkerId peer) = 0;
  /// Ends the connections dialled to the peer; `dial_again` replaces them by new ones. Both may
  /// happen later: until then the old connections may send and receive messages.
  virtual void hang_up(WorkerId peer) = 0;
  virtual void dial_again(WorkerId peer) = 0;
  /// Dials more connections to the peer, until there are `streams`.
  virtual void dial_more(WorkerId peer, int streams) = 0;
  /// The valid keys from now on, by member.
  virtual void keys_changed(const std::vector<std::string>& /*members*/) {}
  virtual void event(const LinkEvent& event) = 0;
};

}  // namespace isthmus
