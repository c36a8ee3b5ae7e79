// SPDX-License-Identifier: Apache-2.0
// A hub that dies and is restarted (PeerExchangeOptions::hub): the decisions that its process logs,
// the state that its next process restores from them, and the frames that members send again to
// that process. Rounds wait meanwhile. Pure.
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
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/peer_losses.h"
#include "transport/exchange/round_table.h"

namespace isthmus {

class HubRecovery {
 public:
  /// The parts of the engine that a hub's restart concerns; borrowed.
  struct Parts {
    MemberView& members;
    RoundTable& rounds;
    CommitProtocol& commit;
    MembershipProtocol& epochs;
    PeerLosses& losses;
    ControlSender& sender;
    std::vector<HubRecord>& decisions;
  };
  HubRecovery(const EngineOptions& options, const Parts& parts) : options_(options), at_(parts) {}

  // At a hub.
  /// Restores all decisions of the previous process; a member is heard again only after stands().
  /// No records: a run begins.
  void restore(std::span<const HubRecord> records);
  /// Decisions since the last call. The caller writes them to the log before it sends any frame of
  /// the outbox.
  [[nodiscard]] std::vector<HubRecord> take_records() { return std::exchange(at_.decisions, {}); }
  /// Records of all decisions that the next process needs.
  [[nodiscard]] std::vector<HubRecord> history() const;
  /// `peer`, lost with the previous process, has reconnected and belongs to the same run.
  void stands(WorkerId peer, TimePoint now, Outbox& out);

  /// At a hub: all decisions. At a member: the decisions that it knows.
  [[nodiscard]] Decided decided() const;
  /// At a member with a hub: the hub's next process knows this run. Sends again all that the
  /// previous process was told.
  void tell_again(TimePoint now, Outbox& out);
  /// At a member with a hub: its worker takes part in merges, so it is in the run without a round.
  void merges_begin() { at_.rounds.begin_without_round(); }

 private:
  const EngineOptions& options_;
  const Parts at_;
};

}  // namespace isthmus
