// SPDX-License-Identifier: Apache-2.0
// All links of one member: admission, connections, liveness, and the routing of frames. The engine
// is a state machine fed with messages, connection events and time; it acts through a LinkPort. It
// knows no sockets, so tests can feed it anything.
//
// Every member dials every other one with `streams` connections, and later with more if that helps.
// Frames are sent on dialled connections, and acknowledged on the same connections; so light
// messages never queue behind heavy ones. A connection starts with HELLO and is used after WELCOME.
// When a connection breaks, its unacknowledged frames are retransmitted over the others, or over
// itself once it is open again.
//
// The engine reads messages and gives each one to the part that handles it:
// - LinkGreeting and LinkAdmission: the handshake on dialled and on accepted connections,
// - LinkSending and LinkReceiving: frames out and in,
// - LinkPresence and LinkLiveness: which peers are present, and which are alive,
// - LinkMemberKeys and LinkStrangers: the valid keys, and reports on unknown diallers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/links/link_admission.h"
#include "transport/links/link_connections.h"
#include "transport/links/link_greeting.h"
#include "transport/links/link_liveness.h"
#include "transport/links/link_member_keys.h"
#include "transport/links/link_peers.h"
#include "transport/links/link_port.h"
#include "transport/links/link_presence.h"
#include "transport/links/link_progress.h"
#include "transport/links/link_receiving.h"
#include "transport/links/link_sending.h"
#include "transport/links/link_strangers.h"
#include "transport/links/link_way.h"

namespace isthmus {

class LinkEngine {
 public:
  /// Borrows `port`. `incarnation`: a random number drawn anew by every process.
  LinkEngine(MemberOptions options, const Digest128& incarnation, LinkPort& port, TimePoint now)
      : all_(std::move(options), incarnation, port, now), next_beat_(now) {}
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  // From the member. `returns`: how often kPeerBack of the peer had been reported before the frame,
  // which was sent or received. Frames of or to a previous process are ignored.
  void submit(WorkerId to, FrameBytes frame, std::uint64_t returns = 0) {
    receiving_.says(frame->size());
    sending_.submit(to, std::move(frame), returns);
  }
  void taken(WorkerId from, std::size_t frame_bytes, std::uint64_t returns = 0);
  /// Frames to `to` use its first `streams` connections from now on. Missing connections are
  /// dialled if the peer has joined. REQUIRES: 1 <= streams <= most_streams(options).
  void use_streams(WorkerId to, int streams) { sending_.use_streams(to, streams); }
  [[nodiscard]] int streams_in_use(WorkerId to) const {
    return static_cast<int>(all_.at(to).dialled.use);
  }
  [[nodiscard]] int streams_dialled(WorkerId to) const { return all_.streams_dialled(to); }
  /// Whether frames had to wait for a connection since the last call.
  [[nodiscard]] bool frames_waited(WorkerId to) {
    return std::exchange(all_.at(to).dialled.waited, false);
  }
  /// The member begins without the peers that have not joined: each is reported `back` when it
  /// connects. RETURNS: these peers.
  std::vector<WorkerId> begin_without_absent() { return presence_.begin_without_absent(); }
  /// Nothing more will be submitted or taken; submitted frames are still sent.
  void close(TimePoint now);

  // From the connections this member has dialled.
  /// Other connections, none of which is open yet, have replaced the dialled ones: over a relay
  /// (`around`), or direct. The timeouts of silence and loss continue.
  void rerouted(WorkerId peer, bool around, TimePoint now);
  void stream_up(WorkerId peer, int stream, TimePoint now) {
    greeting_.stream_up(peer, stream, now);
  }
  void stream_down(WorkerId peer, int stream, TimePoint now, const std::string& why) {
    greeting_.stream_down(peer, stream, now, why);
  }
  void stream_trouble(WorkerId peer, int stream, LinkEvent::Kind kind, const std::string& what) {
    greeting_.stream_trouble(peer, stream, kind, what);
  }
  void handshake_failed(WorkerId peer, int stream, HandshakeFault fault) {
    greeting_.handshake_failed(peer, stream, fault);
  }
  void writable(WorkerId peer, int stream) { greeting_.writable(peer, stream); }
  void from_stream(WorkerId peer, std::span<const std::byte> header,
                   std::span<const std::byte> body, TimePoint now);
  /// The result of LinkProgress for the peer's connections; call at each heartbeat, or never.
  void moved(WorkerId peer, Movement movement, TimePoint now) {
    liveness_.moved(peer, movement, sending_.held_back(), now);
  }
  /// The round trip as TCP measures it on connections that end at the peer.
  void measured(WorkerId peer, Duration round_trip) { all_.at(peer).life.round_trip = round_trip; }
  /// From the accepted connections. `owner`: the member whose key opened it, if links have keys.
  /// `kept`: the body's bytes if they can be kept without a copy; otherwise they are copied.
  void from_connection(const ConnectionId& id, std::span<const std::byte> header,
                       std::span<const std::byte> body, TimePoint now,
                       std::optional<WorkerId> owner = {}, FrameBytes kept = nullptr);
  /// A stranger has connected to `endpoint` and failed in the handshake.
  void stranger_handshake(HandshakeFault fault, const std::string& endpoint) {
    strangers_.failed_handshake(fault, endpoint);
  }
  /// A stranger has connected with a key of no member.
  void stranger_key(const std::string& public_key) {
    if (!awaits_keys()) strangers_.brought_key(public_key);  // else the key may be a member's
  }
  /// At the member that announces keys (a hub): the valid keys. All connected peers are told.
  void set_keys(const KeyTable& table) { keys_.set(table); }
  /// The valid keys, by member; empty: links have no keys.
  [[nodiscard]] const std::vector<std::string>& keys() const { return all_.options.member_keys; }
  /// Whether only the announcing member can be admitted, since no table has arrived yet.
  [[nodiscard]] bool awaits_keys() const { return keys_.awaited(); }

  /// The time to use for sending, until the next call of `see` or `tick`.
  void see(TimePoint now) { all_.now = now; }
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_tick() const;

  /// True when a message waits for `writable`.
  [[nodiscard]] bool wants_write(WorkerId peer, int stream) const {
    const LinkPeer& of = all_.at(peer);
    return !of.lost && of.dialled.streams[static_cast<std::size_t>(stream)].blocked;
  }
  [[nodiscard]] bool have_joined(std::span<const WorkerId> these) const {
    return presence_.have_joined(these);
  }
  /// The first cause why one of these peers cannot join.
  [[nodiscard]] std::optional<JoinError> join_error(std::span<const WorkerId> these) const {
    return presence_.join_error(these);
  }
  /// The peers of these that have not joined, with what is known of them, for people.
  [[nodiscard]] std::string describe_missing(std::span<const WorkerId> these,
                                             std::span<const std::string> endpoints) const;
  /// After `close`: every living peer has received all frames.
  [[nodiscard]] bool all_told() const { return presence_.all_told(); }
  [[nodiscard]] bool is_lost(WorkerId peer) const { return all_.at(peer).lost; }
  [[nodiscard]] LinkSigns signs(WorkerId peer) const { return liveness_.signs(peer); }
  [[nodiscard]] std::size_t bytes_in_flight(WorkerId to) const {
    return all_.at(to).out.bytes_in_flight();
  }
  [[nodiscard]] std::size_t bytes_held(WorkerId from) const {
    return all_.at(from).in.bytes_held();
  }

 private:
  void take_acknowledgement(WorkerId rank, std::uint64_t frames);
  /// From a connection that has greeted, with the right key.
  void from_peer(const ConnectionId& id, const LinkHeader& header, std::span<const std::byte> body,
                 TimePoint now, FrameBytes kept);
  /// From a peer that counts as lost here.
  void answer_lost(const ConnectionId& id, WorkerId from, std::uint32_t stream);
  void beat(TimePoint now);

  LinkPeers all_;
  LinkStrangers strangers_{all_};
  LinkConnections connections_{all_};
  LinkSending sending_{all_};
  LinkReceiving receiving_{all_, connections_};
  LinkPresence presence_{all_, connections_, sending_, receiving_};
  LinkLiveness liveness_{all_, presence_};
  LinkMemberKeys keys_{all_, strangers_, connections_, presence_};
  LinkGreeting greeting_{all_, strangers_, keys_, sending_, presence_};
  LinkAdmission admission_{all_, strangers_, connections_, keys_, presence_};
  TimePoint next_beat_;
};

}  // namespace isthmus
