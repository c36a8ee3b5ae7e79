// SPDX-License-Identifier: Apache-2.0
// A hub that dies and comes back (PeerExchangeOptions::hub): the decisions that its process writes
// down, what its next process takes over from them, and what members tell that process again.
// Rounds wait meanwhile. Pure.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/membership_protocol.h"
#include "transport/exchange/moving_shares.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/peer_losses.h"
#include "transport/exchange/round_table.h"

namespace isthmus {

class HubRecovery {
 public:
  /// The parts of the engine that a hub's return concerns; borrowed.
  struct Parts {
    MemberView& members;
    RoundTable& rounds;
    CommitProtocol& commit;
    MovingShares& shares;
    MembershipProtocol& epochs;
    PeerLosses& losses;
    ControlSender& sender;
    std::vector<HubRecord>& decisions;
  };
  HubRecovery(const EngineOptions& options, const Parts& parts) : options_(options), at_(parts) {}

  // At a hub.
  /// Takes over all that has been decided by the process before; members are heard only once they
  /// stand. No records: a run begins.
  void restore(std::span<const HubRecord> records);
  /// Decided since the last call: to be written down before anything of the outbox is sent.
  [[nodiscard]] std::vector<HubRecord> take_records() { return std::exchange(at_.decisions, {}); }
  /// All that a next process needs of what has been decided.
  [[nodiscard]] std::vector<HubRecord> history() const;
  /// `peer` has come back from before `restore`, and is of the same run.
  void stands(WorkerId peer, TimePoint now, Outbox& out);

  /// At a hub all that was decided, at a member what it knows of that.
  [[nodiscard]] Decided decided() const;
  /// At a member with a hub: its next process knows this member's run. Says again what it was told.
  void tell_again(TimePoint now, Outbox& out);

 private:
  const EngineOptions& options_;
  const Parts at_;
};

}  // namespace isthmus
