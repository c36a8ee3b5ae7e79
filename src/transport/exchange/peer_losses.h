// SPDX-License-Identifier: Apache-2.0
// Handling of peers whose links are lost, whose processes restart, that say goodbye or that delay a
// round, at the member and at the coordinator. A member reports a loss to the coordinator with
// GONE; the coordinator excludes the lost member (membership_protocol.h). Reports that values do
// not arrive between two members are collected first (reachability_reports.h). Without `elastic`
// every round that needs the lost peer fails. Pure.
#pragma once

#include <string>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/membership_protocol.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/proxy_rounds.h"
#include "transport/exchange/reachability_reports.h"
#include "transport/exchange/round_table.h"
#include "transport/exchange/start_barrier.h"
#include "transport/wire/frame.h"
#include "transport/wire/loss_cause.h"

namespace isthmus {

class PeerLosses {
 public:
  /// The parts of the engine that a loss concerns; borrowed.
  struct Parts {
    MemberView& members;
    RoundTable& rounds;
    CommitProtocol& commit;
    MembershipProtocol& epochs;
    ProxyRounds& proxies;
    ReachabilityReports& reports;
    StartBarrier& barrier;
    ControlSender& sender;
  };
  PeerLosses(const EngineOptions& options, const Parts& parts) : options_(options), at_(parts) {}

  /// The transport's news: `peer` is lost.
  void lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out, LossCause cause);
  /// A lost peer is lost once more: a round still waits for it, or the GONE about it may have been
  /// lost.
  void lose_again(WorkerId peer, TimePoint now, Outbox& out);
  /// Calls lose_again for all lost members, if a round is open.
  void lose_again_all(TimePoint now, Outbox& out);
  /// As in ExchangeEngine.
  void welcome_back(WorkerId peer, TimePoint now, Outbox& out);
  /// Frame GONE.
  void take_gone(WorkerId from, const Frame& frame, TimePoint now, Outbox& out);
  /// Frame BYE. In a group with a fixed membership, a round that the sender has not begun can never
  /// complete: it fails at once, or when this member begins it.
  void take_bye(WorkerId from, const FrameHeader& head, TimePoint now, Outbox& out);
  /// A round has begun: it fails if a member left before it began that round.
  void fail_if_left(OpenRound& open, Outbox& out);
  /// As in ExchangeEngine.
  void leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out);
  /// At the coordinator: excludes members according to the reports collected long enough.
  void settle_reports(TimePoint now, Outbox& out);

 private:
  void report(WorkerId peer, LossCause cause, const std::string& why, Outbox& out);
  void fail_what_needs(WorkerId peer, Outbox& out);
  void end_without_coordinator(const std::string& why);
  [[nodiscard]] bool needs(WorkerId peer) const;
  [[nodiscard]] bool alone() const;
  [[nodiscard]] const Membership& membership() const { return at_.members.membership(); }

  const EngineOptions& options_;
  const Parts at_;
};

}  // namespace isthmus
