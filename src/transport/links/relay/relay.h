// SPDX-License-Identifier: Apache-2.0
// A relay: connects members that cannot be dialled with the others. It listens at one port. Such a
// member keeps a connection open, on which the relay announces calls; the member answers with a
// second connection, and the relay forwards the bytes between caller and called. It does not read
// them, and cannot if links have keys. The relay's process is a member itself; with keys it serves
// only members. One task; bounded in connections, in bytes of each, and in all waits.
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
#include "transport/links/announced_keys.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_message.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/tcp/tcp_splice.h"

namespace isthmus {

/// Timeout of silence for a listening member and its relay; and the interval of their beats.
inline constexpr Duration kRelaySilence = std::chrono::seconds(4);
inline constexpr Duration kRelayBeat = std::chrono::seconds(1);

/// The files of a relay in this member's process when all connections to members that cannot be
/// dialled pass through it, two each, besides listening members and new visitors. Connections of
/// former processes, and detours of pairs, use files that are free at the time.
[[nodiscard]] long relay_files(const MemberOptions& options);

class Relay {
 public:
  /// Listens. `options`: of this process's member: run, members, keys, streams, dead_after. `told`:
  /// keys announced by a hub; may be null. Members without an announced key are asked to wait.
  /// THROWS: SystemError when the address cannot be bound; ConfigError for a member's key that is
  /// no valid public key.
  Relay(Runtime& runtime, const MemberOptions& options, const std::string& host, int port,
        std::shared_ptr<const AnnouncedKeys> told = nullptr);
  /// Ends all connections; blocks after `finish_in_order`.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] int port() const { return listener_.port(); }
  /// True once it has failed and serves no more, even if its port is open. Any task.
  [[nodiscard]] bool gone() const { return gone_; }
  /// Uses the announced keys of its member's next transport. Any task.
  void listen_to(std::shared_ptr<const AnnouncedKeys> told);
  /// The destructor waits for relayed connections to end, for at most `linger`. Any task.
  void finish_in_order() { lingers_ = true; }

 private:
  /// A connection that has not sent its request yet, or was refused and may still be sending.
  struct Visitor {
    TcpSocket socket;
    std::string peer;
    Digest128 challenge;
    TimePoint deadline;
    std::string input = {};
    bool refused = false;
    std::size_t drained = 0;
    std::size_t place = 0;  // index in the list of the last wait
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
  /// Takes newly announced keys; ends connections of keys that are no longer valid.
  void look_at_keys();
  void take_connections(TimePoint now);
  /// RETURNS: false once the visitor is done, or has become another kind of connection.
  [[nodiscard]] bool advance(Visitor& visitor, TimePoint now);
  [[nodiscard]] static bool advance(Listening& listening, bool ready, TimePoint now);
  /// Ends a visitor from the address with the most visitors, so that a flood ends itself.
  void end_a_visitor();
  /// RETURNS: why the request failed; nothing: the visitor's socket has been taken.
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
  /// Reports it at the 1st, 2nd, 4th, 8th, ... time.
  void complain(RelayWordKind about, const std::string& text);
  [[nodiscard]] std::string name(WorkerId member) const;

  Runtime& runtime_;
  const MemberOptions options_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::shared_ptr<const AnnouncedKeys> told_;  // shared with the transport and the relayed links
  bool tells_anew_ = false;                    // it belongs to another transport than before
  // The task's alone:
  std::vector<std::string> keys_;                 // by member; empty: none known
  std::vector<std::optional<SharedKey>> shared_;  // with each; empty without keys
  std::uint64_t told_version_ = 0;                // version of these keys
  TcpSocket listener_;
  Alarm stop_;
  std::atomic<bool> lingers_{false};
  std::atomic<bool> gone_{false};
  // The task's alone:
  std::list<Visitor> visitors_;  // oldest first
  std::map<int, Listening> listening_;
  std::list<Caller> callers_;
  std::list<Joined> joined_;
  TimePoint listen_again_;  // no connections are accepted before
  std::map<RelayWordKind, std::uint64_t> complaints_;
  bool stopping_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
