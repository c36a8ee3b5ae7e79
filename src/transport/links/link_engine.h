// SPDX-License-Identifier: Apache-2.0
// All links of one member: who is welcome, which connections stand, who is alive, what goes where.
// The engine is a state machine fed with messages, connection news and time; it acts through a
// LinkPort. The engine knows no sockets, so tests can feed it anything.
//
// Every member dials every other one with `streams` connections, and later with more where that
// helps. Frames leave on dialled connections, and their acknowledgements return on the same
// connections; so light messages never queue behind heavy ones. A connection starts with HELLO and
// is used after WELCOME; when a connection breaks, the frames that it carried and that were not
// acknowledged go again over the others, or over itself once it is back.
//
// The engine reads messages and gives each one to the part whose idea it is:
// - LinkGreeting and LinkAdmission: the handshake on dialled and on accepted connections,
// - LinkSending and LinkReceiving: frames out and in,
// - LinkPresence and LinkLiveness: who is here, and who is alive,
// - LinkMemberKeys and LinkStrangers: whose keys count, and reports on unknown diallers.
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
  /// Borrows `port`. `incarnation`: drawn afresh by every process.
  LinkEngine(MemberOptions options, const Digest128& incarnation, LinkPort& port, TimePoint now)
      : all_(std::move(options), incarnation, port, now), next_beat_(now) {}
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  // From the member. `returns`: how often the member had been told that the peer is back when it
  // sent the frame, or when the peer did. Frames of a former process of the peer do not count.
  void submit(WorkerId to, FrameBytes frame, std::uint64_t returns = 0) {
    sending_.submit(to, std::move(frame), returns);
  }
  void taken(WorkerId from, std::size_t frame_bytes, std::uint64_t returns = 0);
  /// Frames to `to` go over its first `streams` connections from now on. Connections that are not
  /// there yet are dialled, to a peer that has joined; otherwise nothing happens.
  /// REQUIRES: 1 <= streams <= most_streams(options).
  void use_streams(WorkerId to, int streams) { sending_.use_streams(to, streams); }
  [[nodiscard]] int streams_in_use(WorkerId to) const {
    return static_cast<int>(all_.at(to).dialled.use);
  }
  [[nodiscard]] int streams_dialled(WorkerId to) const { return all_.streams_dialled(to); }
  /// Whether frames had to wait for a connection to take them since this was last asked.
  [[nodiscard]] bool frames_waited(WorkerId to) {
    return std::exchange(all_.at(to).dialled.waited, false);
  }
  /// The member begins without those who have not joined: each is `back` when it comes.
  /// RETURNS: who they are.
  std::vector<WorkerId> begin_without_absent() { return presence_.begin_without_absent(); }
  /// Nothing more will be submitted or taken; what has been submitted still goes.
  void close(TimePoint now);

  // From the connections this member has dialled.
  /// Other connections, none of which stands yet, have taken their place: `around` by way of a
  /// relay, or not. The times since when the peer counts as gone or silent stay as before.
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
  /// What LinkProgress says of them; to be told at each heartbeat, or never.
  void moved(WorkerId peer, Movement movement, TimePoint now) {
    liveness_.moved(peer, movement, sending_.held_back(), now);
  }
  /// As TCP measures it on connections that end at the peer.
  void measured(WorkerId peer, Duration round_trip) { all_.at(peer).life.round_trip = round_trip; }
  /// From the connections it has accepted. `owner`: whose key opened it, where links have keys.
  /// `kept`: the body's bytes, where they can be kept as they are; else they are copied.
  void from_connection(const ConnectionId& id, std::span<const std::byte> header,
                       std::span<const std::byte> body, TimePoint now,
                       std::optional<WorkerId> owner = {}, FrameBytes kept = nullptr);
  /// Someone has connected to `endpoint` and got no further.
  void stranger_handshake(HandshakeFault fault, const std::string& endpoint) {
    strangers_.failed_handshake(fault, endpoint);
  }
  /// ... with a key that is no member's.
  void stranger_key(const std::string& public_key) {
    if (!awaits_keys()) strangers_.brought_key(public_key);  // else the key may be a member's
  }
  /// At the member that says whose keys count. All who stand are told.
  void set_keys(const KeyTable& table) { keys_.set(table); }
  /// Whose keys count now, by member; empty: without keys.
  [[nodiscard]] const std::vector<std::string>& keys() const { return all_.options.member_keys; }
  /// Whether nobody but who says them can be let in before a word on them has come.
  [[nodiscard]] bool awaits_keys() const { return keys_.awaited(); }

  /// What time it is, for what is sent until the next call of this or `tick`.
  void see(TimePoint now) { all_.now = now; }
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_tick() const;

  /// True when something waits for `writable`.
  [[nodiscard]] bool wants_write(WorkerId peer, int stream) const {
    const LinkPeer& of = all_.at(peer);
    return !of.lost && of.dialled.streams[static_cast<std::size_t>(stream)].blocked;
  }
  [[nodiscard]] bool have_joined(std::span<const WorkerId> these) const {
    return presence_.have_joined(these);
  }
  /// Why one of these cannot join: the first cause.
  [[nodiscard]] std::optional<JoinError> join_error(std::span<const WorkerId> these) const {
    return presence_.join_error(these);
  }
  /// Who of these has not joined and what is known of it, for people.
  [[nodiscard]] std::string describe_missing(std::span<const WorkerId> these,
                                             std::span<const std::string> endpoints) const;
  /// After `close`: every living peer has all frames.
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
  /// From a connection that has greeted, and whose key fits.
  void from_peer(const ConnectionId& id, const LinkHeader& header, std::span<const std::byte> body,
                 TimePoint now, FrameBytes kept);
  /// From a peer that is lost here.
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
