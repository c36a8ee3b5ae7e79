// SPDX-License-Identifier: Apache-2.0
// The connections that this member dials: each one greets with HELLO and carries frames after
// WELCOME. Refusals and handshakes that fail say why a peer cannot join. Part of LinkEngine.
#pragma once

#include <span>
#include <string>

#include "transport/links/link_member_keys.h"
#include "transport/links/link_peers.h"
#include "transport/links/link_presence.h"
#include "transport/links/link_sending.h"
#include "transport/links/link_strangers.h"

namespace isthmus {

class LinkGreeting {
 public:
  LinkGreeting(LinkPeers& all, const LinkStrangers& strangers, const LinkMemberKeys& keys,
               LinkSending& sending, LinkPresence& presence)
      : all_(all), strangers_(strangers), keys_(keys), sending_(sending), presence_(presence) {}

  // Events of dialled connections, as in LinkEngine.
  void stream_up(WorkerId rank, int stream, TimePoint now);
  void stream_down(WorkerId rank, int stream, TimePoint now, const std::string& why);
  void stream_trouble(WorkerId rank, int stream, LinkEvent::Kind kind, const std::string& what);
  void handshake_failed(WorkerId rank, int stream, HandshakeFault fault);
  void writable(WorkerId rank, int stream);

  void greet(WorkerId rank, int stream, TimePoint now);
  /// The connection counts as down, and its unacknowledged frames are retransmitted.
  void drop(WorkerId rank, int stream, TimePoint now);
  void drop_all(WorkerId rank, TimePoint now);
  /// Heartbeat on the peer's connections: open ones report their number of frames, others greet.
  void beat(WorkerId rank, TimePoint now);
  /// The peer has accepted the greeting.
  void welcomed(WorkerId rank, const LinkHeader& header, std::span<const std::byte> body,
                TimePoint now);
  /// The peer has refused the greeting.
  void refused(WorkerId rank, int stream, std::span<const std::byte> body);
  /// The peer cannot join once a key mismatch has lasted long enough to be treated as permanent.
  void settle_misfit(WorkerId rank, TimePoint now);

 private:
  /// Whether the answering process is the known process of this peer.
  bool answers_for(WorkerId rank, int stream, std::span<const std::byte> body, TimePoint now);
  [[nodiscard]] std::string handshake_words(WorkerId rank, HandshakeFault fault) const;

  LinkPeers& all_;
  const LinkStrangers& strangers_;
  const LinkMemberKeys& keys_;
  LinkSending& sending_;
  LinkPresence& presence_;
};

}  // namespace isthmus
