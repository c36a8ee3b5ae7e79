// SPDX-License-Identifier: Apache-2.0
// A transport whose members are other processes: first every member binds, then all exchange
// endpoints, then they join. Implemented over ZeroMQ (transport/links/zmq/zmq_transport.h).
//
// Frames between a pair keep their order and survive broken connections while both processes live.
// A member is lost when it leaves, when its connections break and do not reopen, when it is silent
// for the timeout, or when it violates the protocol. With `readmits` it may return as a new
// process, which has received nothing that was sent before. Untaken frames count against a window,
// so a slow reader slows its senders down, and its memory is bounded.
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

/// Events of a network transport's connections, in words. For logs, and for tests.
struct LinkEvent {
  enum class Kind {
    kConnected,        // a connection is open
    kWelcomed,         // ... and the peer has accepted this member; stream -1: it was absent
    kDisconnected,     // an open connection broke
    kHandshakeFailed,  // the other end does not speak the protocol, or has another key
    kRetried,          // no answer yet
    kUnresolved,       // the peer's name has no address; stream -1
    kRefused,          // one of the two does not accept the other
    kLost,             // the peer counts as lost
    kLeft,             // the peer has left in order
    kAdapted,          // the number of connections that carry frames has changed; stream -1
    kRerouted,         // connections to the peer use another path from now on; stream -1
    kStranger,         // a stranger: bytes that are no message, or a key of no member
  };
  Kind kind = Kind::kConnected;
  WorkerId peer{-1};  // -1: unknown
  int stream = -1;    // index among the parallel connections, if about one
  std::string text;
};

/// Values that all members of a run must have equal.
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
      {};           // of all members, until they send theirs; may be empty
  int streams = 4;  // parallel connections of each directed link, 1 to 64
  /// 0: fixed at `streams`. Otherwise a link that loses packets dials more, up to this many, and
  /// uses fewer again when it does not (stream_policy.h).
  int most_streams = 0;
  /// For tests, in place of TCP's counters on the first `streams` connections.
  std::function<std::optional<LinkCounters>(WorkerId peer, int streams)> count_tcp = {};
  /// Of each incoming link: bytes of frames arrived and not taken. At least kSmallestWindow.
  std::size_t window_bytes = std::size_t{32} << 20;
  Duration heartbeat = std::chrono::seconds(1);
  Duration dead_after = std::chrono::seconds(8);  // timeout of silence
  Duration gone_after = std::chrono::seconds(2);  // timeout after its last connection broke
  /// Timeout of a peer that is heard and takes none of the frames that it has: it hangs.
  Duration stuck_after = std::chrono::minutes(2);
  Duration linger = std::chrono::seconds(5);  // how long a close waits for sent frames
  Duration far = kFarRoundTrip;               // longer round trips mean a long-distance link
  /// The send limit to all others together, in bit/s of frames; 0: none. Called by the transport's
  /// own task at the start and at every heartbeat; empty: no limit.
  std::function<double()> send_bits_per_s = {};
  /// With keys all links are encrypted, and only owners of members' keys are admitted: this
  /// member's pair, and the public keys of all members, in member order, its own included.
  std::optional<LinkKeys> keys = {};
  std::vector<std::string> member_keys = {};
  /// The member that announces the valid keys (a hub), equal at all members. Its table overrides
  /// `member_keys`: it can remove those keys but not replace them. With keys and `readmits`.
  std::optional<WorkerId> keys_from = {};
  /// The announcing member may also add keys, equal at all members: such keys are empty in
  /// `member_keys`, except this member's own. Before its first table no other member is dialled or
  /// admitted.
  bool keys_come = false;
  /// At that member, called by the transport's own task: the holder of an invitation, identified by
  /// its public key, asks to be admitted. At most once a second for each. An answer without a
  /// welcome or a reason means: ask again.
  std::function<EnrolAnswer(const std::string& invitation, std::span<const std::byte> request)>
      on_enrol = {};
  /// Members that are linked to this one through a relay. TCP's counters on their connections
  /// describe only this machine's part of the path, so they are ignored. These links count as
  /// long-distance.
  std::vector<WorkerId> relayed = {};
  /// Members with an address are also reached through a relay when the direct path fails
  /// (link_way.h). Counts in this member's use of files and sockets.
  bool detours = false;
  /// This process is also a relay for `relayed`: counts likewise.
  bool relays = false;
  /// Without keys: allows links beyond this machine, which anyone on the path can read and change.
  bool plaintext = false;
  /// A lost member, whatever the cause, may return as a new process (kPeerBack). If it is not known
  /// to be dead it must have been silent for three heartbeats.
  bool readmits = false;
  std::function<void(const LinkEvent&)> on_event = {};  // called by the transport's own task
  /// Likewise, every few seconds, for each peer whose TCP counters describe the path to it.
  std::function<void(WorkerId peer, const LinkReading& reading)> on_reading = {};
  /// Likewise, for each frame given to a connection (`leaves`) or received on one; for a
  /// retransmitted frame again. For recordings.
  std::function<void(bool leaves, WorkerId peer, int stream, std::span<const std::byte> frame)>
      on_carried = {};
};
/// The meaning of "auto" in a configuration: the number at first, and the most.
inline constexpr int kFewestStreams = 4, kMostStreams = 24;
[[nodiscard]] inline bool is_relayed(const MemberOptions& options, WorkerId peer) {
  return std::find(options.relayed.begin(), options.relayed.end(), peer) != options.relayed.end();
}
/// The most connections that a link may have.
[[nodiscard]] inline int most_streams(const MemberOptions& options) {
  return std::max(options.streams, options.most_streams);
}
/// From a configuration: the number, or 0 for "auto".
inline void set_streams(MemberOptions& options, int configured) {
  options.streams = configured == 0 ? kFewestStreams : configured;
  options.most_streams = configured == 0 ? kMostStreams : 0;
}
/// An eighth of the window is acknowledged at a time, so a sender of the largest frames never waits
/// for the rest.
inline constexpr std::size_t kSmallestWindow = 8 * (kMaxLinkBody + 256);

/// Why the members did not all join.
struct JoinError {
  bool refused = false;  // by a peer or of a peer, or it was lost; otherwise the timeout
  RefusedField field = RefusedField::kMalformed;  // the cause, if a peer refused
  WorkerId peer{-1};
  std::string what;
};

/// THROWS: ConfigError naming the invalid option.
void check_options(const MemberOptions& options);
/// THROWS: ConfigError when it is not tcp://HOST:PORT (*: any, for a listener), or is beyond this
/// machine and that is not `allowed`.
void check_endpoint(const std::string& endpoint, bool listens, bool allowed);
/// Whether links may leave this machine: with keys, or with the option plaintext.
[[nodiscard]] inline bool may_leave_machine(const MemberOptions& options) {
  return options.keys.has_value() || options.plaintext;
}

class NetworkTransport : public Transport {
 public:
  /// The address at which this member can be reached; the port is known.
  [[nodiscard]] virtual const std::string& endpoint() const = 0;
  /// Starts to dial the others. `endpoints`: one a member, in member order, this one's included.
  /// `detours`: endpoints to dial when those fail, likewise; an empty string or list: none. Call
  /// once. THROWS: ConfigError for an invalid address, or one beyond this machine without keys or
  /// `plaintext`.
  virtual void join(std::span<const std::string> endpoints,
                    std::span<const std::string> detours) = 0;
  void join(std::span<const std::string> endpoints) { join(endpoints, {}); }
  /// Blocks until each of `these` has accepted this member on every stream, and with `readmits` has
  /// greeted it on every stream. REQUIRES: MemberOptions::readmits, unless `these` are all others.
  /// One caller at a time. RETURNS: the other members that are absent; each is reported (kPeerBack)
  /// when it connects, and nothing is sent to it before that. Or the member of `these` that
  /// refused, is lost or is missing, and why; after a timeout the call may be repeated.
  [[nodiscard]] virtual Expected<std::vector<WorkerId>, JoinError> await_members(
      TimePoint deadline, std::span<const WorkerId> these) = 0;
  /// At the member that announces keys: the new table, the first one before `join`. All members are
  /// told; connections with keys that are no longer in it end. Any task.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): an implementation that keeps it moves it
  virtual void set_keys(KeyTable /*table*/) {}
  /// With keys: the members that may be present, this one included. RETURNS: nothing while the
  /// table is still missing (`keys_come`).
  [[nodiscard]] virtual std::optional<std::vector<WorkerId>> members_with_keys() {
    return std::nullopt;
  }
  /// Waits for all.
  [[nodiscard]] Expected<void, JoinError> await_members(TimePoint deadline);
};

}  // namespace isthmus
