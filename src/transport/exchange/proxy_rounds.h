// SPDX-License-Identifier: Apache-2.0
// Rounds that are begun in this member's name, without its work, where rounds have a deadline
// (round_deadline.h): a member whose training is late for a round takes part in it by proxy. Its
// own engine, which lives while its training computes, begins the round with weight 0, so for the
// others it is a member like any: it owns its parts, agrees, commits. When its training gets there,
// its contribution is too late, and the round's result is there.
//
// Nothing is agreed on. Each member says what it has begun, and which round before that; so a
// member that is behind knows what comes next, and begins nothing out of order, whatever was lost
// on the way. Both count only as two thirds say them alike: no single member's word makes anybody
// begin anything. Pure.
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
  /// A round to begin in this member's name.
  struct Due {
    Contribution contribution;  // without weight or bytes
    TimePoint since;            // enough others had begun it
  };

  /// Borrows all but `deadline`, which is the member's own.
  ProxyRounds(const EngineOptions& options, const MemberView& members, const RoundTable& rounds,
              ControlSender& sender)
      : options_(options),
        members_(members),
        rounds_(rounds),
        sender_(sender),
        deadline_(options.exchange.deadline) {}

  /// A round was begun here, by the member or in its name. RETURNS: the one begun before it.
  std::optional<SyncId> begun(const SyncId& id);
  /// This member begins a round itself: so the fragment's next ones look too.
  void keep_form(const Contribution& own, TimePoint now);
  /// This member has got to a round that was begun in its name: its own contribution is too late.
  void met(TimePoint since, TimePoint now);
  /// Sends BEGUN of a round that has begun here.
  void announce(const OpenRound& open, const std::vector<WorkerId>& to, Outbox& out);
  /// Frame BEGUN.
  void take_begun(WorkerId from, const FrameHeader& head);

  /// Counts who has begun what.
  void look_ahead(TimePoint now);
  /// The next round that is due to be begun in this member's name; the caller begins it.
  [[nodiscard]] std::optional<Due> take_due(TimePoint now);
  /// When there is one.
  [[nodiscard]] TimePoint due() const;
  /// Nothing has been heard of any round.
  void clear() { ahead_.clear(); }

  /// The last step after which a round was sent that was begun in this member's name and not met.
  [[nodiscard]] std::optional<StepIndex> begun_ahead() const;
  /// Of the fragment of which it is most: how many of its last rounds, in a row, were begun so. One
  /// that this member begins itself ends the row.
  [[nodiscard]] int missed_in_a_row() const;
  /// Those begun so since the last call.
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
  std::map<FragmentId, Contribution> forms_;  // as this member contributes, without weight or bytes
  std::map<FragmentId, int> missed_;          // in its name, since it has begun one itself
  std::optional<SyncId> begun_last_;          // by this member or in its name
  TimePoint look_again_;                      // not before, for what is due and may not be begun
  TimePoint ask_again_;                       // the same, of PeerExchangeOptions::may_proxy
  std::vector<ProxyRound> begun_so_;          // and not taken
};

}  // namespace isthmus
