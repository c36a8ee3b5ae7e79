// SPDX-License-Identifier: Apache-2.0
// All links of one member: who is welcome, which connections stand, who is alive, what goes where.
// A state machine fed with messages, connection news and time; it acts through a LinkPort. It knows
// no sockets, so tests can feed it anything.
//
// Every member dials every other one with `streams` connections, and later with more where that
// helps. Frames go out on those, and their acknowledgements come back on them; so what is light
// never queues behind what is heavy. A connection starts with HELLO and is used after WELCOME; when
// it breaks, what it carried and was not acknowledged goes again over the others, or over itself
// once it is back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/link_flow.h"
#include "transport/link_message.h"
#include "transport/link_progress.h"
#include "transport/link_way.h"
#include "transport/loss_cause.h"
#include "transport/network_transport.h"
#include "transport/send_budget.h"

namespace isthmus {

/// Who is at the other end of an accepted connection: unique while the process lives.
using ConnectionId = std::string;

/// Why a connection did not come to stand, as far as its end here can tell.
enum class HandshakeFault {
  kHungUp,        // no reason given: also what who dials sees of a wrong key of the other
  kMechanism,     // one end has keys, the other has none
  kKeyRefused,    // the key of who dials is none that the other knows
  kWrongAddress,  // the dialler means another key than that of who listens
  kOther,
};

class LinkPort {
 public:
  virtual ~LinkPort() = default;
  /// Over a dialled connection. RETURNS: false when it takes nothing now.
  virtual bool to_stream(Rank peer, int stream, const LinkHeader& header, FrameBytes body) = 0;
  /// Over an accepted connection; may be dropped.
  virtual void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) = 0;
  /// To the member's own queue.
  virtual void deliver(Rank from, FrameBytes frame) = 0;
  /// News for the member: the peer is gone, or stands as a new process. By turns.
  virtual void lost(Rank peer, LossCause cause, const std::string& why) = 0;
  virtual void back(Rank peer) = 0;
  /// Ends the connections dialled to the peer; `dial_again` begins new ones in their place. Both
  /// may happen later: until then the old ones may bring and take what they like.
  virtual void hang_up(Rank peer) = 0;
  virtual void dial_again(Rank peer) = 0;
  /// Dials more connections to the peer, until there are `streams`.
  virtual void dial_more(Rank peer, int streams) = 0;
  /// Whose keys count from now on, by member.
  virtual void keys_changed(const std::vector<std::string>& /*members*/) {}
  virtual void event(const LinkEvent& event) = 0;
};

class LinkEngine {
 public:
  /// Borrows `port`. `incarnation`: drawn afresh by every process.
  LinkEngine(MemberOptions options, const Digest128& incarnation, LinkPort& port, TimePoint now);

  // From the member. `returns`: how often it had been told that the peer is back when it sent the
  // frame, or when the peer did: what belongs to a former process of the peer counts no more.
  void submit(Rank to, FrameBytes frame, std::uint64_t returns = 0);
  void taken(Rank from, std::size_t frame_bytes, std::uint64_t returns = 0);
  /// Frames to `to` go over its first `streams` connections from now on. Connections that are not
  /// there yet are dialled, to a peer that has joined; otherwise nothing happens.
  /// REQUIRES: 1 <= streams <= most_streams(options).
  void use_streams(Rank to, int streams);
  [[nodiscard]] int streams_in_use(Rank to) const { return static_cast<int>(at(to).use); }
  [[nodiscard]] int streams_dialled(Rank to) const {
    return static_cast<int>(at(to).streams.size());
  }
  /// Whether frames had to wait for a connection to take them since this was last asked.
  [[nodiscard]] bool frames_waited(Rank to) { return std::exchange(at(to).waited, false); }
  /// The member begins without those who have not joined: each is `back` when it comes.
  /// RETURNS: who they are.
  std::vector<Rank> begin_without_absent();
  /// Nothing more will be submitted or taken; what has been submitted still goes.
  void close(TimePoint now);

  // From the connections this member has dialled.
  /// Others have taken their place, of which none stands yet: `around` by way of a relay, or not.
  /// Since when the peer counts as gone or silent is as before.
  void rerouted(Rank peer, bool around, TimePoint now);
  void stream_up(Rank peer, int stream, TimePoint now);
  void stream_down(Rank peer, int stream, TimePoint now, const std::string& why);
  void stream_trouble(Rank peer, int stream, LinkEvent::Kind kind, const std::string& what);
  void handshake_failed(Rank peer, int stream, HandshakeFault fault);
  void writable(Rank peer, int stream);
  void from_stream(Rank peer, std::span<const std::byte> header, std::span<const std::byte> body,
                   TimePoint now);
  /// What LinkProgress says of them; to be told at each heartbeat, or never.
  void moved(Rank peer, Movement movement, TimePoint now);
  /// As TCP measures it on connections that end at the peer.
  void measured(Rank peer, Duration round_trip) { at(peer).round_trip = round_trip; }
  /// From the connections it has accepted. `owner`: whose key opened it, where links have keys.
  /// `kept`: the body's bytes, where they can be kept as they are; else they are copied.
  void from_connection(const ConnectionId& id, std::span<const std::byte> header,
                       std::span<const std::byte> body, TimePoint now,
                       std::optional<Rank> owner = {}, FrameBytes kept = nullptr);
  /// Someone has connected to `endpoint` and got no further.
  void stranger_handshake(HandshakeFault fault, const std::string& endpoint);
  /// ... with a key that is no member's.
  void stranger_key(const std::string& public_key);
  /// At the member that says whose keys count. All who stand are told.
  void set_keys(const KeyTable& table);
  /// Whose keys count now, by member; empty: without keys.
  [[nodiscard]] const std::vector<std::string>& keys() const { return options_.member_keys; }
  /// Whether nobody but who says them can be let in before a word on them has come.
  [[nodiscard]] bool awaits_keys() const {
    return keys_may_come() && options_.self != *options_.keys_from && !keys_version_;
  }

  /// What time it is, for what is sent until the next call of this or `tick`.
  void see(TimePoint now) { now_ = now; }
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_tick() const;

  /// True when something waits for `writable`.
  [[nodiscard]] bool wants_write(Rank peer, int stream) const;
  [[nodiscard]] bool have_joined(std::span<const Rank> these) const;
  /// Why one of these cannot join: the first cause.
  [[nodiscard]] std::optional<JoinError> join_error(std::span<const Rank> these) const;
  /// Who of these has not joined and what is known of it, for people.
  [[nodiscard]] std::string describe_missing(std::span<const Rank> these,
                                             std::span<const std::string> endpoints) const;
  /// After `close`: every living peer has all frames.
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] bool is_lost(Rank peer) const { return at(peer).lost; }
  [[nodiscard]] LinkSigns signs(Rank peer) const {
    const Peer& of = at(peer);
    // On a detour bytes move in lumps, as the tasks on the way have room: no sign of another way.
    return {.joined = of.joined,
            .answered = of.answered,
            .stalled_since = passed_on(peer) ? std::nullopt : of.stalled_since,
            .down_since = of.down_since};
  }
  [[nodiscard]] std::size_t bytes_in_flight(Rank to) const { return at(to).out.bytes_in_flight(); }
  [[nodiscard]] std::size_t bytes_held(Rank from) const { return at(from).in.bytes_held(); }

 private:
  enum class StreamState { kDown, kGreeting, kReady };
  struct Stream {
    StreamState state = StreamState::kDown;
    bool blocked = false;       // takes nothing, or not the greeting, until writable
    std::uint64_t attempt = 0;  // the greeting said last
    std::uint64_t sent = 0;     // frames since the greeting
    TimePoint greeted{};
    std::uint64_t troubles = 0;
    std::string trouble;         // the last one
    bool failed_before = false;  // in the handshake; a retry that follows is no news
  };
  struct Connection {
    Rank peer;
    std::uint32_t stream = 0;
    std::uint64_t received = 0;  // frames since the greeting
  };
  struct Peer {
    explicit Peer(std::size_t window) : in(window) {}
    LinkSender out;
    LinkReceiver in;
    std::vector<Stream> streams;
    std::size_t last_stream = 0;
    std::size_t use = 0;                // streams that carry frames: the first so many
    bool waited = false;                // frames did, for one of those
    std::vector<ConnectionId> inbound;  // by stream; empty: none. Nobody says when one breaks
    std::uint32_t last_inbound = 0;     // the stream it was last heard on
    std::vector<std::uint64_t> next_greeting;  // of this process, by stream: the least that is new
    std::uint64_t greetings = 0;               // said to any process of it
    std::optional<Digest128> incarnation;
    std::vector<Digest128> superseded;  // processes that were this member before
    std::string name;
    bool joined = false;            // accepted on every stream, once
    bool lost = false;              // this process of it is
    bool away = false;              // the owner does without it: lost, or absent from the beginning
    std::uint64_t times_away = 0;   // this included
    std::vector<FrameBytes> early;  // came before it had joined, where it may come back
    TimePoint heard{};
    TimePoint answered{};                 // heard on a connection dialled to it, or begun
    TimePoint spoke{};                    // heard on a connection it has dialled
    std::optional<TimePoint> down_since;  // the last of its connections that stood broke
    // Frames are on their way to it, and since then
    std::optional<TimePoint> stalled_since;  // ... nothing of them gets through
    std::optional<TimePoint> untaken_since;  // ... all of them are there, and it takes none
    TimePoint looked{};                      // at how they move, last
    bool around = false;                     // they go by way of a relay
    Duration round_trip{0};                  // as last measured; 0: never
    struct Misfit {  // handshakes with it that ended for its key, or this one
      TimePoint first{}, last{};
      std::string what{};
      bool hung_up = false;  // the last one, without a word
    };
    std::optional<Misfit> misfit;          // one after another
    std::optional<std::uint64_t> leaving;  // the peer leaves after so many frames
    bool said_close = false;
    bool told = false;  // it knows that this member leaves and has all frames
  };

  [[nodiscard]] Peer& at(Rank rank) { return peers_.at(static_cast<std::size_t>(rank.value())); }
  [[nodiscard]] const Peer& at(Rank rank) const {
    return peers_.at(static_cast<std::size_t>(rank.value()));
  }
  [[nodiscard]] Peer new_peer() const;
  [[nodiscard]] std::vector<Rank> living() const;
  void count_taken(Rank from, std::size_t frame_bytes);
  void pump(Rank rank);
  void send_held_back(TimePoint now);
  void greet(Rank rank, int stream, TimePoint now);
  void drop_stream(Rank rank, int stream, TimePoint now);
  void welcomed(Rank rank, const LinkHeader& header, std::span<const std::byte> body,
                TimePoint now);
  /// Whether the process that answered is the one this link is with.
  bool answers_for(Rank rank, int stream, std::span<const std::byte> body, TimePoint now);
  void refused(Rank rank, int stream, std::span<const std::byte> body);
  void take_hello(const ConnectionId& id, const LinkHeader& header, std::span<const std::byte> body,
                  TimePoint now, std::optional<Rank> owner);
  void settle_joined(Rank rank);
  /// The peer has joined; its owner learns it if it did without.
  void stand(Rank rank);
  /// Another process is this member from now on.
  void begin_anew(Rank rank);
  void hand_out(Rank from, FrameBytes frame);
  void take_frame(Rank from, std::uint64_t number, FrameBytes frame);
  /// Whether a process other than the one known so far may be this member now.
  [[nodiscard]] bool may_replace(const Peer& peer, TimePoint now) const;
  /// Whether it was this member before: another one followed, or its key was taken from it. It may
  /// live, and listen where it did.
  [[nodiscard]] static bool is_former(const Peer& peer, const Digest128& incarnation);
  void refuse(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream = 0);
  /// ... and says so to the owner, what was refused less often the more often it is.
  void differs(const Hello& theirs, const Refusal& refusal);
  void refuse_and_tell(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream,
                       const std::string& what);
  void stranger(const std::string& what);
  void count_stranger(LinkEvent::Kind kind, const std::string& what);
  [[nodiscard]] bool with_keys() const { return !options_.member_keys.empty(); }
  /// Whether this connection may speak for `claimed`; refuses and counts it otherwise.
  bool speaks_for(Rank claimed, std::optional<Rank> owner, const ConnectionId& id);
  [[nodiscard]] std::string handshake_words(Rank peer, HandshakeFault fault) const;
  void forget(const ConnectionId& id);
  void acknowledge(Rank rank);
  /// On every connection the peer has dialled.
  void say_inbound(Rank rank, LinkKind kind, std::uint64_t number = 0);
  void say_close(Rank rank);
  void settle_leave(Rank rank);
  void check_life(Rank rank, TimePoint now);
  /// When broken connections to it have had their time to come back.
  [[nodiscard]] TimePoint gone_at(Rank rank) const;
  /// Its connections end in this machine, from where others carry them on.
  [[nodiscard]] bool passed_on(Rank rank) const {
    return at(rank).around || is_relayed(options_, rank);
  }
  void cannot_join(Rank rank, RefusedField field, const std::string& why);
  /// Whether its key, or this one's, has been the wrong one for so long that it is so.
  void settle_misfit(Rank rank, TimePoint now);
  void give_up_on(Rank rank, const char* why);
  [[nodiscard]] bool has_key_for_good(Rank rank) const;
  /// Whether members may be let in whose keys are not in the configuration.
  [[nodiscard]] bool keys_may_come() const { return options_.keys_from && options_.keys_come; }
  /// From who says whose keys count.
  void take_keys(Rank from, std::span<const std::byte> body);
  void use_keys(const std::vector<std::string>& keys);
  void change_key(Rank rank, const std::string& key);
  void say_keys(Rank rank);
  void lose(Rank rank, LinkEvent::Kind kind, const std::string& why,
            LossCause cause = LossCause::kGone);
  [[nodiscard]] std::string describe(Rank rank) const;

  MemberOptions options_;
  Hello hello_;  // less `to`
  LinkPort& port_;
  std::vector<Peer> peers_;  // by member; the own entry is idle
  std::map<ConnectionId, Connection> connections_;
  std::vector<JoinError> join_errors_;  // at most one a peer, in the order they came
  std::uint64_t strangers_ = 0;
  std::map<std::string, std::uint64_t> strangers_by_text_;
  std::string hint_;  // at why a member may be missing: the last stranger with a key, or without
  std::optional<TimePoint> foreign_key_;       // a connection with one was refused last
  std::vector<std::string> file_keys_;         // as given; what is empty may be filled
  std::optional<std::uint64_t> keys_version_;  // of the table in use, with keys_from
  bool closing_ = false;
  SendBudget budget_;
  bool held_back_ = false;  // by the budget: something waits for it to open
  Rank sent_last_;          // to whom
  TimePoint now_;           // as last told by `tick`: not after the real one
  TimePoint last_tick_;
  TimePoint next_tick_;
};

}  // namespace isthmus
