// SPDX-License-Identifier: Apache-2.0
// What a member makes of peers whose links are lost, that return as new processes, say goodbye, or
// hold a round up, and what the coordinator makes of such reports. A member tells the coordinator
// with GONE; the coordinator excludes the member (membership_protocol.h). Reports that values
// vanish between two members are gathered first (reachability_reports.h). Without `elastic` every
// round that needs the lost peer fails. Pure.
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

  /// The transport's news: `peer` is gone.
  void lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out, LossCause cause);
  /// A peer was lost before: something waits for it yet, or the word on it may not have come.
  void lose_again(WorkerId peer, TimePoint now, Outbox& out);
  /// As lose_again of all lost members, while a round is open.
  void lose_again_all(TimePoint now, Outbox& out);
  /// Links to a new process of `peer` stand: as ExchangeEngine's.
  void welcome_back(WorkerId peer, TimePoint now, Outbox& out);
  /// Frame GONE.
  void take_gone(WorkerId from, const Frame& frame, TimePoint now, Outbox& out);
  /// Frame BYE. In a group without membership changes a round that the sender has not begun can
  /// never be complete: it fails, at once or as soon as this member begins it.
  void take_bye(WorkerId from, const FrameHeader& head, TimePoint now, Outbox& out);
  /// A round has begun: the members that had left without it fail it.
  void fail_if_left(OpenRound& open, Outbox& out);
  /// The member has waited long for a round: as ExchangeEngine's.
  void leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out);
  /// At the coordinator: members are excluded whose reports have been gathered for long enough.
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
