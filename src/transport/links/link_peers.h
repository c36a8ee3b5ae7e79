// SPDX-License-Identifier: Apache-2.0
// The state that all parts of a LinkEngine share: the member's options and greeting, the time, and
// a record for each peer. LinkEngine owns the state; the parts borrow it. One task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "transport/links/link_flow.h"
#include "transport/links/link_message.h"
#include "transport/links/link_port.h"
#include "transport/links/network_transport.h"

namespace isthmus {

/// One connection that this member has dialled.
struct LinkStream {
  enum class State { kDown, kGreeting, kReady };
  State state = State::kDown;
  bool blocked = false;       // accepts no message, or no greeting, until writable
  std::uint64_t attempt = 0;  // number of the last greeting
  std::uint64_t sent = 0;     // frames since the greeting
  TimePoint greeted{};
  std::uint64_t troubles = 0;
  std::string trouble;         // the last one
  bool failed_before = false;  // in the handshake; a following retry is not reported

  [[nodiscard]] bool ready() const { return state == State::kReady; }
};

/// The state of one peer and of the links from and to it.
struct LinkPeer {
  /// The connections that this member has dialled to the peer.
  struct Dialled {
    std::vector<LinkStream> streams;
    std::size_t last = 0;         // the stream that has carried a frame last
    std::size_t use = 0;          // number of streams that carry frames, from the first on
    bool use_told = false;        // LinkEngine::use_streams has said how many
    bool waited = false;          // frames had to wait for one of those
    std::uint64_t greetings = 0;  // greetings sent to any process of the peer
    bool around = false;          // the connections use a relay
  };
  /// The connections that the peer has dialled. A break of one of them is not reported.
  struct Accepted {
    std::vector<ConnectionId> ids;             // by stream; empty: none
    std::uint32_t last = 0;                    // the stream on which the peer was last heard
    std::vector<std::uint64_t> next_greeting;  // by stream: lower numbers are old
  };
  /// The peer's current process.
  struct Process {
    std::optional<Digest128> incarnation;
    std::vector<Digest128> superseded;  // earlier processes of this member
    std::string name;
  };
  /// The peer's last signs of life, and the begin of stalls.
  struct Life {
    TimePoint heard{};
    TimePoint answered{};                    // last heard on a dialled connection, or dialled
    TimePoint spoke{};                       // last heard on an accepted connection
    std::optional<TimePoint> down_since;     // when the last open dialled connection broke
    std::optional<TimePoint> stalled_since;  // frames are in flight and none gets through
    std::optional<TimePoint> untaken_since;  // all frames have arrived and the peer takes none
    TimePoint looked{};                      // when `moved` was last reported
    Duration round_trip{0};                  // as last measured; 0: never
  };
  /// Consecutive handshakes with the peer that failed because of a key.
  struct Misfit {
    TimePoint first{}, last{};
    std::string what{};
    bool hung_up = false;  // the last one failed without a reason
  };
  /// The state of both ends in leaving.
  struct Farewell {
    std::optional<std::uint64_t> leaving;  // the peer leaves after this many frames
    bool said_close = false;
    bool told = false;  // the peer knows that this member leaves, and has all frames
  };

  explicit LinkPeer(std::size_t window) : in(window) {}
  /// Whether that process was this member before: a new process replaced it, or its key was
  /// revoked. A former process may still run, and listen at its old address.
  [[nodiscard]] bool is_former(const Digest128& incarnation) const;

  LinkSender out;
  LinkReceiver in;
  Dialled dialled;
  Accepted accepted;
  Process process;
  Life life;
  Farewell farewell;
  std::optional<Misfit> misfit;
  bool joined = false;            // every stream was accepted once
  bool lost = false;              // the current process is lost
  bool away = false;              // the owner continues without the peer: lost, or absent at first
  std::uint64_t times_away = 0;   // number of absences, with a current one
  std::vector<FrameBytes> early;  // frames from before the peer had joined, if it may rejoin
};

struct LinkPeers {
  /// Borrows `port`. `incarnation`: drawn afresh by every process.
  LinkPeers(MemberOptions options, const Digest128& incarnation, LinkPort& port, TimePoint now);

  [[nodiscard]] LinkPeer& at(WorkerId rank) {
    return peers.at(static_cast<std::size_t>(rank.value()));
  }
  [[nodiscard]] const LinkPeer& at(WorkerId rank) const {
    return peers.at(static_cast<std::size_t>(rank.value()));
  }
  /// A record without knowledge of a peer.
  [[nodiscard]] LinkPeer unknown() const;
  /// All others that are not lost, in rank order.
  [[nodiscard]] std::vector<WorkerId> living() const;
  [[nodiscard]] int streams_dialled(WorkerId rank) const {
    return static_cast<int>(at(rank).dialled.streams.size());
  }
  /// Whether connections to the peer end at a forwarder on this machine, for a relay.
  [[nodiscard]] bool passed_on(WorkerId rank) const {
    return at(rank).dialled.around || is_relayed(options, rank);
  }
  [[nodiscard]] bool with_keys() const { return !options.member_keys.empty(); }
  /// The peer's number and name, for people.
  [[nodiscard]] std::string describe(WorkerId rank) const;

  MemberOptions options;
  Hello hello;  // without `to`
  LinkPort& port;
  TimePoint now{};      // from the last `tick` or `see`; not ahead of the real time
  TimePoint last_beat;  // the last heartbeat
  bool closing = false;
  std::vector<LinkPeer> peers;  // by member; the own entry is idle
};

}  // namespace isthmus
