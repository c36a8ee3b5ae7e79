// SPDX-License-Identifier: Apache-2.0
// A member's side of relays (relay.h). For each member that cannot be dialled, at present or at
// all, it opens a port on its own machine, and forwards connections to that port through a relay. A
// member that may have to be reached in this way listens at every other member's relay, and
// forwards calls to its own transport's port. To the transports at both ends these are normal
// connections, which break when something on the path does. One task; it forwards bytes without
// knowing their meaning.
//
// Host names of relays are looked up by a second task (name_lookup.h) when they are first needed. A
// result is kept until a later lookup, at most one a minute, finds other addresses. A connection
// waits one second for the name of its relay, then tries another relay.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/announced_keys.h"
#include "transport/links/name_lookup.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_call.h"
#include "transport/links/tcp/tcp_splice.h"

namespace isthmus {

/// The most files for forwarded connections in this member's process, two each: from here to
/// members that cannot be dialled, and from all to here if this member is one. With detours all
/// members may count as such. For the relay of this process: relay_files (relay.h).
[[nodiscard]] long passed_on_files(const MemberOptions& options);

class RelayedLinks {
 public:
  struct Routes {
    std::vector<RelayPlace> relays;      // tried in this order; at least one
    std::vector<WorkerId> hidden;        // members that cannot be dialled, possibly with this one
    std::vector<WorkerId> detours = {};  // dialable members that are reached this way too; likewise
    int own_port = 0;                    // of this member's transport, if it is listed,
    std::string own_host = "127.0.0.1";  // ... and a numeric address of this machine for it
    NameLookup::LookUp look_up = resolve_tcp;  // of relays
  };
  /// `options`: of this member. `told`: the relays' keys, if a hub announces them; may be null.
  /// THROWS: SystemError when no port is available.
  RelayedLinks(Runtime& runtime, const MemberOptions& options, Routes routes,
               std::shared_ptr<const AnnouncedKeys> told = nullptr);
  /// Ends all connections.
  ~RelayedLinks();
  RelayedLinks(const RelayedLinks&) = delete;
  RelayedLinks& operator=(const RelayedLinks&) = delete;

  /// The endpoint to dial in place of the member's. REQUIRES: another member, hidden or in detours.
  [[nodiscard]] std::string endpoint(WorkerId hidden) const;
  /// Why the last attempt to reach it (for this member: to be reached) failed; empty: it did not.
  /// Any task.
  [[nodiscard]] std::string trouble(WorkerId hidden) const;

 private:
  /// For one hidden member: connections here are meant for it.
  struct Door {
    TcpSocket listener;
    std::size_t relay = 0;  // to try first: the last that served, or the one after a failed one
    std::size_t place = 0;  // index in the list of the last wait
  };
  /// A connection of the transport that is being forwarded to a hidden member.
  struct Outgoing {
    WorkerId to;
    TcpSocket local;
    TimePoint given_up_at;
    TimePoint again;         // the next attempt
    Duration backoff;        // after the next attempt
    std::string early = {};  // bytes sent so far
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
  /// The addresses of a relay's name.
  struct Addresses {
    std::vector<TcpAddress> found = {};
    bool doubted = true;  // they do not answer, or there are none
    TimePoint look_up_at = {};
    std::string why = {};  // why there are none
  };
  void serve();
  void turn();
  [[nodiscard]] bool takes_more(WorkerId to) const;
  void take_connections(WorkerId to, Door& door, TimePoint now);
  /// The door's next connections try the relay after `relay` first.
  void turn_from(std::size_t relay, WorkerId to);
  /// A member does not listen at its own relay.
  [[nodiscard]] std::size_t relay_after(std::size_t relay, WorkerId to) const;
  /// RETURNS: false once it has ended, or has been connected.
  [[nodiscard]] bool advance(Outgoing& outgoing, const std::vector<Waited>& all, TimePoint now);
  void advance(Listening& listening, const std::vector<Waited>& all, TimePoint now);
  /// RETURNS: false when the relay is lost.
  [[nodiscard]] bool hear(Listening& listening, TimePoint now);
  void answer_call(std::size_t relay, const Digest128& token, TimePoint now);
  [[nodiscard]] bool advance(RelayCall& accepting, const std::vector<Waited>& all, TimePoint now);
  /// The known addresses of the relay's name; starts a lookup if one is due.
  const Addresses& addresses(std::size_t relay, TimePoint now);
  /// RETURNS: nothing when the relay's name has no address, or none yet.
  [[nodiscard]] std::optional<RelayCall> call(std::size_t relay, const RelayRequest& request,
                                              TimePoint now);
  void failed(WorkerId hidden, std::size_t relay, const std::string& why);
  void succeeded(WorkerId hidden);

  Runtime& runtime_;
  const MemberOptions options_;
  const std::shared_ptr<const AnnouncedKeys> told_;  // shared with the transport and the relay
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
  TimePoint take_again_ = {};              // doors accept nothing before
  bool stopping_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
