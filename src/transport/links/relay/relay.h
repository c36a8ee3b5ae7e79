// SPDX-License-Identifier: Apache-2.0
// A relay: joins members that cannot be dialled to the others. It listens at one port. Such a
// member keeps a connection open, on which it is told when somebody calls it; it answers by another
// one, and the relay passes on the bytes between caller and called, which it neither reads nor
// could, where links have keys. It is a member itself, and with keys serves members alone. One
// task; bounded in connections, in bytes of each, and in how long anybody may take.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_message.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/tcp/tcp_splice.h"
#include "transport/links/told_keys.h"

namespace isthmus {

/// How long a member that listens, or its relay, may be silent; and how often each says something.
inline constexpr Duration kRelaySilence = std::chrono::seconds(4);
inline constexpr Duration kRelayBeat = std::chrono::seconds(1);

/// The files that a relay of this member's process takes when all connections to members that
/// cannot be dialled pass here, two each, beside who listens and who has just come. Former
/// processes' connections, and pairs that only go round, come out of what nobody uses at the time.
[[nodiscard]] long relay_files(const MemberOptions& options);

class Relay {
 public:
  /// Listens. `options`: of the member whose process this is: run, members, keys, streams,
  /// dead_after. `told`: what a hub says of keys since; may be null. Members whose key is still to
  /// be told are asked to wait. THROWS: SystemError when the address cannot be bound; ConfigError
  /// for a member's key that no secret can be shared with.
  Relay(Runtime& runtime, const MemberOptions& options, const std::string& host, int port,
        std::shared_ptr<const ToldKeys> told = nullptr);
  /// Ends all connections; blocks after `finish_in_order`.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] int port() const { return listener_.port(); }
  /// It serves no more, whatever its port says: it has met an error. Any task.
  [[nodiscard]] bool gone() const { return gone_; }
  /// What its member's next transport is told of keys. Any task.
  void listen_to(std::shared_ptr<const ToldKeys> told);
  /// The end is to wait for those whose connections pass here, for at most `linger`. Any task.
  void finish_in_order() { lingers_ = true; }

 private:
  /// Has connected, and not said what for; or was refused, and may still be sending.
  struct Visitor {
    TcpSocket socket;
    std::string peer;
    Digest128 challenge;
    TimePoint deadline;
    std::string input = {};
    bool refused = false;
    std::size_t drained = 0;
    std::size_t place = 0;  // in what was waited for
  };
  struct Listening {
    TcpSocket socket;
    TimePoint heard, next_beat;
    std::string input = {};
    std::size_t place = 0;
  };
  struct Caller {
    TcpSocket socket;
    WorkerId from, to;
    Digest128 token;
    TimePoint deadline;
    std::size_t place = 0;
  };
  struct Joined {
    TcpSplice splice;
    WorkerId from, to;
  };
  void serve();
  void turn();
  /// What a hub has said since of whose keys count; ends what other keys have opened.
  void look_at_keys();
  void take_connections(TimePoint now);
  /// RETURNS: false once it is over, or has become something else.
  [[nodiscard]] bool advance(Visitor& visitor, TimePoint now);
  [[nodiscard]] static bool advance(Listening& listening, bool ready, TimePoint now);
  /// One of those from the address that has the most, so that a flood ends itself.
  void end_a_visitor();
  /// RETURNS: why not; otherwise the visitor's socket has been taken.
  [[nodiscard]] std::optional<RelayWordKind> fulfil(Visitor& visitor, TimePoint now);
  [[nodiscard]] std::optional<RelayWordKind> check(const Visitor& visitor,
                                                   const RelayRequest& request) const;
  [[nodiscard]] RelayWordKind why_no_key(WorkerId member) const;
  [[nodiscard]] std::optional<RelayWordKind> listen(Visitor& visitor, const RelayRequest& request,
                                                    TimePoint now);
  [[nodiscard]] std::optional<RelayWordKind> dial(Visitor& visitor, const RelayRequest& request,
                                                  TimePoint now);
  [[nodiscard]] std::optional<RelayWordKind> accept(Visitor& visitor, const RelayRequest& request);
  void refuse(Visitor& visitor, RelayWordKind why, TimePoint now);
  /// Says it at the 1st, 2nd, 4th, 8th, ... time.
  void complain(RelayWordKind about, const std::string& text);
  [[nodiscard]] std::string name(WorkerId member) const;

  Runtime& runtime_;
  const MemberOptions options_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::shared_ptr<const ToldKeys> told_;  // with the transport and the relayed links
  bool tells_anew_ = false;               // it is that of another transport than before
  // The task's alone:
  std::vector<std::string> keys_;                 // by member; empty: none that is known
  std::vector<std::optional<SharedKey>> shared_;  // with each; empty without keys
  std::uint64_t told_version_ = 0;                // of which they are
  TcpSocket listener_;
  Alarm stop_;
  std::atomic<bool> lingers_{false};
  std::atomic<bool> gone_{false};
  // The task's alone:
  std::list<Visitor> visitors_;  // oldest first
  std::map<int, Listening> listening_;
  std::list<Caller> callers_;
  std::list<Joined> joined_;
  TimePoint listen_again_;  // no connections are taken before
  std::map<RelayWordKind, std::uint64_t> complaints_;
  bool stopping_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
