// SPDX-License-Identifier: Apache-2.0
// A member's side of relays (relay.h): towards members that cannot be dialled, now or ever, it
// stands as a port of its own machine for each, whose connections it takes to a relay; a member
// that may have to be reached so itself listens at every other's relay, and takes calls to the port
// at which its transport listens. To the transports at both ends these are connections like others,
// that break when something on the way does. One task; it passes bytes on and knows nothing of what
// they are.
//
// Names of relays are looked up beside it (name_lookup.h), when they are first needed; what was
// found is kept until a later lookup, at most one a minute, finds other addresses. A connection
// waits for the name of its relay for a second, then it goes by another one.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/name_lookup.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_call.h"
#include "transport/links/tcp/tcp_splice.h"
#include "transport/links/told_keys.h"

namespace isthmus {

/// The most files that connections passed on take in this member's process, two each: from here to
/// members that cannot be dialled, and from all to here where it is one itself. With detours all
/// may be such members. What passes a relay of this process: relay_files (relay.h).
[[nodiscard]] long passed_on_files(const MemberOptions& options);

class RelayedLinks {
 public:
  struct Routes {
    std::vector<RelayPlace> relays;  // tried in this order; at least one
    std::vector<WorkerId> hidden;    // members that cannot be dialled, this one possibly among them
    std::vector<WorkerId> detours = {};  // that can be, and are reached this way too; likewise
    int own_port = 0;                    // of this member's transport, where it is one of those,
    std::string own_host = "127.0.0.1";  // ... and a numeric address of this machine for it
    NameLookup::LookUp look_up = resolve_tcp;  // of relays
  };
  /// `options`: of this member. `told`: the relays' keys, where a hub says them; may be null.
  /// THROWS: SystemError when no port can be had.
  RelayedLinks(Runtime& runtime, const MemberOptions& options, Routes routes,
               std::shared_ptr<const ToldKeys> told = nullptr);
  /// Ends all connections.
  ~RelayedLinks();
  RelayedLinks(const RelayedLinks&) = delete;
  RelayedLinks& operator=(const RelayedLinks&) = delete;

  /// What to dial in the place of the member. REQUIRES: another one of the hidden or the detours.
  [[nodiscard]] std::string endpoint(WorkerId hidden) const;
  /// Why the last attempt to reach it, or for this member itself to be reached, has failed; empty:
  /// it has not. Any task.
  [[nodiscard]] std::string trouble(WorkerId hidden) const;

 private:
  /// For one hidden member: who connects here, means it.
  struct Door {
    TcpSocket listener;
    std::size_t relay = 0;  // that is tried first: the last that served, or after one that did not
    std::size_t place = 0;  // in what was waited for
  };
  /// A connection of the transport's on its way to a hidden member.
  struct Outgoing {
    WorkerId to;
    TcpSocket local;
    TimePoint given_up_at;
    TimePoint again;         // the next attempt
    Duration backoff;        // after that
    std::string early = {};  // what it has sent
    std::size_t relay = 0;
    std::optional<RelayCall> call = {};
    std::size_t place = 0;
  };
  /// This hidden member at one relay.
  struct Listening {
    std::size_t relay = 0;
    TimePoint again;
    Duration backoff;
    std::optional<RelayCall> call = {};
    std::optional<TcpSocket> socket = {};  // while it listens
    TimePoint heard = {}, next_beat = {};
    std::string input = {};
    std::size_t place = 0;
  };
  /// Of a relay's name.
  struct Addresses {
    std::vector<TcpAddress> found = {};
    bool doubted = true;  // they do not answer, or there are none
    TimePoint look_up_at = {};
    std::string why = {};  // there are none
  };
  void serve();
  void turn();
  [[nodiscard]] bool takes_more(WorkerId to) const;
  void take_connections(WorkerId to, Door& door, TimePoint now);
  /// The door's next connections try the relay after `relay` first.
  void turn_from(std::size_t relay, WorkerId to);
  /// Nobody listens at a relay of its own.
  [[nodiscard]] std::size_t relay_after(std::size_t relay, WorkerId to) const;
  /// RETURNS: false once it is over, or joined.
  [[nodiscard]] bool advance(Outgoing& outgoing, const std::vector<Waited>& all, TimePoint now);
  void advance(Listening& listening, const std::vector<Waited>& all, TimePoint now);
  /// RETURNS: false when the relay is gone.
  [[nodiscard]] bool hear(Listening& listening, TimePoint now);
  void answer_call(std::size_t relay, const Digest128& token, TimePoint now);
  [[nodiscard]] bool advance(RelayCall& accepting, const std::vector<Waited>& all, TimePoint now);
  /// What is known of the relay's name; looked up where that is due.
  const Addresses& addresses(std::size_t relay, TimePoint now);
  /// RETURNS: nothing when the relay's name has no address, or none yet.
  [[nodiscard]] std::optional<RelayCall> call(std::size_t relay, const RelayRequest& request,
                                              TimePoint now);
  void failed(WorkerId hidden, std::size_t relay, const std::string& why);
  void succeeded(WorkerId hidden);

  Runtime& runtime_;
  const MemberOptions options_;
  const std::shared_ptr<const ToldKeys> told_;  // with the transport and the relay
  const Routes routes_;
  const std::size_t most_from_each_;  // connections of or to one member
  Alarm stop_;
  std::unique_ptr<WaitQueue> queue_;
  std::map<int, std::string> trouble_;  // under queue_'s lock
  // The task's alone once it runs:
  std::map<int, Door> doors_;
  std::list<Outgoing> outgoing_;
  std::list<Listening> listening_;
  std::list<RelayCall> accepting_;
  std::list<TcpSplice> joined_;            // from doors
  std::list<TcpSplice> accepted_;          // from relays
  NameLookup names_;                       // by relay
  std::vector<Addresses> addresses_;       // by relay
  std::map<int, std::uint64_t> failures_;  // in a row, by hidden member
  TimePoint take_again_ = {};              // doors take nothing before
  bool stopping_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
