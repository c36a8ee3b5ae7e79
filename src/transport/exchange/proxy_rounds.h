// SPDX-License-Identifier: Apache-2.0
// Rounds begun by proxy: in this member's name, without its values, when rounds have a deadline
// (round_deadline.h) and its training is late. The member's engine, which runs while training
// computes, begins the round with weight 0. For the other members it behaves like any member: it
// reduces the parts that it owns, sends DONE and takes the commit. When its training reaches the
// round, its contribution is too late, and the round's result is ready.
//
// No agreement is needed. Each member announces the round that it has begun and the round that it
// began before; so a member that is behind knows the next round and begins rounds in order, even if
// frames were lost. Both count only when two thirds of the members announce the same: a single
// member's frame cannot make another member begin a round. Pure.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/round_deadline.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

class ProxyRounds {
 public:
  /// A round to begin by proxy.
  struct Due {
    Contribution contribution;  // without weight or bytes
    TimePoint since;            // when enough other members had begun it
  };

  /// Copies the deadline of the options; borrows everything else.
  ProxyRounds(const EngineOptions& options, const MemberView& members, const RoundTable& rounds,
              ControlSender& sender)
      : options_(options),
        members_(members),
        rounds_(rounds),
        sender_(sender),
        deadline_(options.exchange.deadline) {}

  /// A round was begun here, by the member or by proxy. RETURNS: the round begun before it.
  std::optional<SyncId> begun(const SyncId& id);
  /// This member begins a round itself: later proxy rounds of its fragment copy the contribution's
  /// form.
  void keep_form(const Contribution& own, TimePoint now);
  /// Training has reached a round that was begun by proxy: its own contribution is too late.
  void met(TimePoint since, TimePoint now);
  /// Sends BEGUN for a round that has begun here.
  void announce(const OpenRound& open, const std::vector<WorkerId>& to, Outbox& out);
  /// Frame BEGUN.
  void take_begun(WorkerId from, const FrameHeader& head);

  /// Counts the rounds that other members have begun.
  void look_ahead(TimePoint now);
  /// The next round that is due to begin by proxy; the caller begins it.
  [[nodiscard]] std::optional<Due> take_due(TimePoint now);
  /// When the next round is due to begin by proxy.
  [[nodiscard]] TimePoint due() const;
  /// Forgets all announcements of other members.
  void clear() { ahead_.clear(); }

  /// The newest send step of a round that was begun by proxy and that training has not reached.
  [[nodiscard]] std::optional<StepIndex> begun_ahead() const;
  /// The number of consecutive last rounds of a fragment that were begun by proxy; the largest
  /// number over the fragments. A round that this member begins itself sets its fragment's number
  /// to 0.
  [[nodiscard]] int missed_in_a_row() const;
  /// Rounds begun by proxy since the last call.
  [[nodiscard]] std::vector<ProxyRound> take() { return std::exchange(begun_so_, {}); }

 private:
  [[nodiscard]] std::optional<SyncId> next_ahead() const;
  [[nodiscard]] bool may_begin(const SyncId& id, TimePoint now);
  [[nodiscard]] bool training_allows(StepIndex sent, TimePoint now);
  [[nodiscard]] Duration pause() const;
  [[nodiscard]] bool enabled() const;

  const EngineOptions& options_;
  const MemberView& members_;
  const RoundTable& rounds_;
  ControlSender& sender_;
  std::optional<RoundDeadline> deadline_;
  std::map<SyncId, RoundAhead> ahead_;        // begun by others, not here
  std::map<FragmentId, Contribution> forms_;  // contributions' forms, without weight or bytes
  std::map<FragmentId, int> missed_;          // proxy rounds since it began one itself
  std::optional<SyncId> begun_last_;          // by the member or by proxy
  TimePoint look_again_;                      // next check of a due round that may not begin
  TimePoint ask_again_;                       // the same, for PeerExchangeOptions::may_proxy
  std::vector<ProxyRound> begun_so_;          // by proxy, and not taken
};

}  // namespace isthmus
