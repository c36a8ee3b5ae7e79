// SPDX-License-Identifier: Apache-2.0
// A transport whose members are other processes: first every member binds, then all learn the
// endpoints of all, then they join. Implemented over ZeroMQ (transport/links/zmq/zmq_transport.h).
//
// Frames between one pair keep their order and survive broken connections while both processes
// live; a member is lost when it leaves, when its connections break and do not come back, when it
// is silent for too long, or when it breaks the protocol. With `readmits` it may come back, as a
// new process that knows nothing of what was sent before. Frames nobody has taken count against a
// window, so a slow reader slows its senders down and bounds what lies here for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "transport/links/key_table.h"
#include "transport/links/link_gauge.h"
#include "transport/links/link_keys.h"
#include "transport/links/link_message.h"
#include "transport/links/tcp/tcp_connection.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// What a network transport has seen of its connections, in words. For logs, and for tests.
struct LinkEvent {
  enum class Kind {
    kConnected,        // a connection stands
    kWelcomed,         // ... and the peer has accepted this member; stream -1: who was away is here
    kDisconnected,     // a connection that stood broke
    kHandshakeFailed,  // whoever answered does not speak the protocol, or not with this key
    kRetried,          // nobody answers yet
    kUnresolved,       // the peer's name has no address; stream -1
    kRefused,          // one of the two does not accept the other
    kLost,             // the peer is counted as gone
    kLeft,             // the peer has left in order
    kAdapted,          // more or fewer connections carry frames from now on; stream -1
    kRerouted,         // connections to the peer take another way from now on; stream -1
    kStranger,         // someone unknown: bytes that are no message, or a key that is no member's
  };
  Kind kind = Kind::kConnected;
  WorkerId peer{-1};  // -1: unknown
  int stream = -1;    // which of the parallel connections, where it is about one
  std::string text;
};

/// What all members of a run have alike.
struct RunIdentity {
  Digest128 run;
  std::string configuration;  // sha256_hex; empty counts as zeros
  Digest128 layout;
};

struct MemberOptions {
  WorkerId self;
  int members = 1;
  std::string bind = "tcp://127.0.0.1:*";  // *: any free port
  RunIdentity identity = {};
  std::string name = {};  // for people; at most kMaxMemberName bytes
  std::vector<std::string> expected_names =
      {};           // of all members, until they say theirs; may be empty
  int streams = 4;  // parallel connections of each directed link, 1 to 64
  /// 0: no more than that, ever. Otherwise a link that loses packets dials more, up to so many, and
  /// uses fewer again when it does not (stream_policy.h).
  int most_streams = 0;
  /// In place of what the system's TCP counts on the first `streams` connections; for tests.
  std::function<std::optional<LinkCounters>(WorkerId peer, int streams)> count_tcp = {};
  /// Of each incoming link: frames come and not taken. At least kSmallestWindow.
  std::size_t window_bytes = std::size_t{32} << 20;
  Duration heartbeat = std::chrono::seconds(1);
  Duration dead_after = std::chrono::seconds(8);  // of silence
  Duration gone_after = std::chrono::seconds(2);  // after its last connection broke
  /// While it is heard, and has frames of which its owner takes none: it hangs.
  Duration stuck_after = std::chrono::minutes(2);
  Duration linger = std::chrono::seconds(5);  // a close waits that long for what was sent
  Duration far = kFarRoundTrip;               // longer round trips are those of long thin links
  /// What may go to all others together, in bit/s of frames; 0: no bound. Asked when the
  /// transport is made and then at every heartbeat by its own task; none: no bound.
  std::function<double()> send_bits_per_s = {};
  /// With keys all links are encrypted, and only who proves to have a member's key is let in: the
  /// own pair, and the public keys of all members, in member order, the own one included.
  std::optional<LinkKeys> keys = {};
  std::vector<std::string> member_keys = {};
  /// The member that says whose keys count (a hub), at all the same: what it says goes before
  /// `member_keys`, whose keys it can take out but not replace. With keys and `readmits`.
  std::optional<WorkerId> keys_from = {};
  /// It may also give keys, at all the same: those are empty in `member_keys`, but for the own one,
  /// and until it has spoken nobody else is dialled or let in.
  bool keys_come = false;
  /// At that member, by the transport's own task: who holds an invitation, by its public key, asks
  /// for a place. Each at most once a second. An answer without a welcome or a reason: ask again.
  std::function<EnrolAnswer(const std::string& invitation, std::span<const std::byte> request)>
      on_enrol = {};
  /// Members whose links to here, and from here to them, go by way of a relay: what TCP counts on
  /// their connections is of this machine's part of the way, so nothing is made of it. They are
  /// far.
  std::vector<WorkerId> relayed = {};
  /// Members with an address are reached by way of a relay too, where the direct way fails
  /// (link_way.h): counts in what this member may take of the machine.
  bool detours = false;
  /// Its process is also a relay of `relayed`: counts likewise.
  bool relays = false;
  /// Without keys: allows links beyond this machine, which anyone on the way can read and change.
  bool plaintext = false;
  /// A member that is lost, however it went, may come back as a new process (kPeerBack). One that
  /// is not known to be dead must have been silent for three heartbeats.
  bool readmits = false;
  std::function<void(const LinkEvent&)> on_event = {};  // called by the transport's own task
  /// Likewise, every few seconds, of each peer whose connections' counters are of the way to it.
  std::function<void(WorkerId peer, const LinkReading& reading)> on_reading = {};
  /// Likewise, of each frame that is put into a connection (`leaves`), or brought by one; of one
  /// that goes again, again. For recordings.
  std::function<void(bool leaves, WorkerId peer, int stream, std::span<const std::byte> frame)>
      on_carried = {};
};
/// What "auto" in a configuration means: the number at first, and the most.
inline constexpr int kFewestStreams = 4, kMostStreams = 24;
[[nodiscard]] inline bool is_relayed(const MemberOptions& options, WorkerId peer) {
  return std::find(options.relayed.begin(), options.relayed.end(), peer) != options.relayed.end();
}
/// The most connections that a link may have.
[[nodiscard]] inline int most_streams(const MemberOptions& options) {
  return std::max(options.streams, options.most_streams);
}
/// As a configuration has it: so many, or 0 for "auto".
inline void set_streams(MemberOptions& options, int configured) {
  options.streams = configured == 0 ? kFewestStreams : configured;
  options.most_streams = configured == 0 ? kMostStreams : 0;
}
/// An eighth is acknowledged at a time, so a sender of the biggest frames never waits for a rest.
inline constexpr std::size_t kSmallestWindow = 8 * (kMaxLinkBody + 256);

/// Why the members did not find together.
struct JoinError {
  bool refused = false;  // by or of a peer, or it was lost; otherwise time was up
  RefusedField field = RefusedField::kMalformed;  // where a peer refused
  WorkerId peer{-1};
  std::string what;
};

/// THROWS: ConfigError naming what cannot be.
void check_options(const MemberOptions& options);
/// THROWS: ConfigError when it is not tcp://HOST:PORT (*: any, for who listens), or when it is
/// beyond this machine and that is not `allowed`.
void check_endpoint(const std::string& endpoint, bool listens, bool allowed);
/// Whether links may leave this machine: with keys, or as plain text by wish.
[[nodiscard]] inline bool may_leave_machine(const MemberOptions& options) {
  return options.keys.has_value() || options.plaintext;
}

class NetworkTransport : public Transport {
 public:
  /// Where this member can be reached; the port is known.
  [[nodiscard]] virtual const std::string& endpoint() const = 0;
  /// Starts to dial the others. `endpoints`: one a member, in member order, the own one included.
  /// `detours`: what to dial where that fails, likewise; empty: nothing, for a member or for all.
  /// Call once. THROWS: ConfigError for one that is no address, or beyond this machine without keys
  /// or `plaintext`.
  virtual void join(std::span<const std::string> endpoints,
                    std::span<const std::string> detours) = 0;
  void join(std::span<const std::string> endpoints) { join(endpoints, {}); }
  /// Blocks until every one of `these` has accepted this member on every stream, and with
  /// `readmits` has greeted it on every one.
  /// REQUIRES: MemberOptions::readmits, unless they are all the others. One caller at a time.
  /// RETURNS: who of the others is not here; each is news (kPeerBack) when it comes, and until then
  /// nothing is sent to it. Or who of `these` refused, is lost or is missing, and why; a wait that
  /// failed for want of time may be tried again.
  [[nodiscard]] virtual Expected<std::vector<WorkerId>, JoinError> await_members(
      TimePoint deadline, std::span<const WorkerId> these) = 0;
  /// At the member that says whose keys count: the table from now on, the first before `join`. All
  /// are told; connections of keys that are no longer in it end. Any task.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): whoever keeps it takes it over
  virtual void set_keys(KeyTable /*table*/) {}
  /// With keys: who may be here, this member included. RETURNS: nothing while that is still to be
  /// said (`keys_come`).
  [[nodiscard]] virtual std::optional<std::vector<WorkerId>> members_with_keys() {
    return std::nullopt;
  }
  /// Waits for all.
  [[nodiscard]] Expected<void, JoinError> await_members(TimePoint deadline);
};

}  // namespace isthmus
