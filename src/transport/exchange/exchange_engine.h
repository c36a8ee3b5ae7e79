// SPDX-License-Identifier: Apache-2.0
// The protocol of one member of an exchange. Frames, losses and new rounds come in; frames go out.
// A pure state machine: peer_exchange.h calls it under one lock. The engine owns the parts below,
// passes each frame to the part that it concerns, and begins rounds:
//   round_table          open rounds and their results
//   exchange_round       data path of one round
//   round_repair         PROBE, ECHO, REQUEST
//   commit_protocol      DONE, COMMIT, ABORT
//   member_view          peers, membership, coordinator
//   membership_protocol  members that join or leave: EPOCH, BYE
//   peer_losses          members lost and returned: GONE
//   hub_recovery         a hub's process ends and its next one begins
// Parts for options of a run: start_barrier, rollback, proxy_rounds, divergent_results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/divergent_results.h"
#include "transport/exchange/exchange_round.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/hub_recovery.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/membership_protocol.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/peer_losses.h"
#include "transport/exchange/proxy_rounds.h"
#include "transport/exchange/reachability_reports.h"
#include "transport/exchange/rollback.h"
#include "transport/exchange/round_repair.h"
#include "transport/exchange/round_table.h"
#include "transport/exchange/start_barrier.h"
#include "transport/wire/frame.h"
#include "transport/wire/loss_cause.h"

namespace isthmus {

/// Events in an engine since the last call, for the exchange that owns the engine.
struct EngineNews {
  std::vector<ThroughRound> through;  // rounds that have become final
  std::vector<HubRecord> records;     // HubRecovery::take_records
  std::vector<Epoch> epochs;          // ExchangeEngine::take_epochs
  std::vector<ProxyRound> proxies;    // ProxyRounds::take
};

class ExchangeEngine {
 public:
  explicit ExchangeEngine(EngineOptions options);
  ExchangeEngine(const ExchangeEngine&) = delete;
  ExchangeEngine& operator=(const ExchangeEngine&) = delete;

  /// Opens a round made from `rounds().place()`. `retained`: the round's contribution, with
  /// `elastic`. REQUIRES: the rules of Exchange::begin.
  void begin(Round round, bool commit, std::optional<SharedContribution> retained, TimePoint now,
             Outbox& out);
  /// Training has reached a round that was begun by proxy in this member's name: its own
  /// contribution is too late. RETURNS: false when the round was not begun by proxy. `begin` calls
  /// this too; a caller that asks first avoids building the round in vain.
  [[nodiscard]] bool meet(const SyncId& id, TimePoint now);
  /// Takes a frame as it arrived. Damaged and foreign frames are dropped; the repair requests their
  /// content again.
  void receive(WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out);
  /// The transport's news, in the transport's order: `peer` is lost. One call a loss.
  void lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out,
            LossCause cause = LossCause::kGone);
  /// Links to a new process of `peer` are open, and nothing has been sent to it yet. The call does
  /// not make `peer` a member; `peer` is one already if the EPOCH that admits it arrived first.
  void welcome_back(WorkerId peer, TimePoint now, Outbox& out);
  /// With `gathers`: all members have met. `met`: by process, how often the peer had been welcomed
  /// back when this member met it. A peer that was lost or restarted since then counts as lost.
  void start(std::span<const std::uint64_t> met, TimePoint now, Outbox& out);
  /// Waits to be admitted: this member takes part only once an EPOCH names it; the run continues
  /// without it.
  /// REQUIRES: nothing has been begun.
  void stand_aside();
  /// At the coordinator: `joiner` takes part in rounds sent after step `after`. REQUIRES: no member
  /// has begun such a round; links between the joiner and all members. RETURNS: false when it is a
  /// member already, or lost.
  bool admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out);
  /// At the coordinator: `member` takes no part in rounds sent after step `after`, none of which
  /// has begun. It finishes the earlier rounds, then says goodbye. RETURNS: false when it is no
  /// member, is leaving already, or too few members would be left.
  bool release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out);
  /// At a hub: excludes `peer`; a hub excludes no member only because of its own links. No effect
  /// when `peer` is no member.
  void exclude(WorkerId peer, const std::string& why, TimePoint now, Outbox& out);
  /// Fails every round, open or yet to begin: this member cannot continue.
  void give_up(const std::string& why, Outbox& out) { commit_.give_up(why, out); }
  /// This member has waited long for the round. A member that has not begun it is excluded if the
  /// run can continue without it. `groups`: this member has waited longer; a collector of another
  /// group whose partial is missing is excluded too, although no member of its group has reported
  /// the cause.
  void leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out);
  /// Sends PROBE to all members that this round waits for; no answer is required. REQUIRES: the
  /// round was begun here and not taken.
  void ask(const SyncId& id, Outbox& out);
  /// Probes, repeats frames and begins rounds that are due. Calls that come early or from two tasks
  /// do no harm.
  void tick(TimePoint now, Outbox& out);
  /// The time of the next useful `tick`; kNever while no round is open.
  [[nodiscard]] TimePoint next_tick() const;

  /// True when `take` has an answer. REQUIRES: as for `ask`.
  [[nodiscard]] bool ready(const SyncId& id) const;
  /// The committed result or the round's error. REQUIRES: ready(id).
  [[nodiscard]] Expected<Reduced, ExchangeError> take(const SyncId& id);
  /// The members and frames that a round waits for, for people. REQUIRES: as for `ask`.
  [[nodiscard]] std::string describe(const SyncId& id) const;

  /// Sends a note: bytes for the program of member `to`, independent of the rounds.
  void note(WorkerId to, std::span<const std::byte> bytes, Outbox& out);
  /// Notes received since the last call, in order of arrival.
  [[nodiscard]] std::vector<std::pair<WorkerId, std::vector<std::byte>>> take_notes();

  /// A member that leaves a running run may say goodbye once its rounds have ended.
  [[nodiscard]] bool may_leave() const;
  /// Says goodbye: this member begins no round and waits for none any more, and still serves the
  /// others.
  void leave(Outbox& out);
  /// True when every peer has said goodbye or is lost; at a hub a lost peer does not count as left.
  /// At a member that was released: true when the coordinator has acknowledged it or is lost. True
  /// at a member that was excluded or whose rounds can no longer end.
  [[nodiscard]] bool all_left() const;

  /// Members that joined or left since the last call, one entry each.
  [[nodiscard]] std::vector<Epoch> take_epochs() { return epochs_.take_epochs(); }
  /// Everything since the last call.
  [[nodiscard]] EngineNews take_news();

  // Parts that the owner of the engine uses directly.
  [[nodiscard]] const MemberView& members() const { return members_; }
  [[nodiscard]] const RoundTable& rounds() const { return rounds_; }
  [[nodiscard]] ProxyRounds& proxies() { return proxies_; }
  [[nodiscard]] const ProxyRounds& proxies() const { return proxies_; }
  [[nodiscard]] Rollback& rollback() { return rollback_; }
  [[nodiscard]] const Rollback& rollback() const { return rollback_; }
  [[nodiscard]] HubRecovery& hub() { return hub_; }
  [[nodiscard]] const HubRecovery& hub() const { return hub_; }

 private:
  void open(Round round, bool commit, std::optional<SharedContribution> retained,
            std::optional<TimePoint> in_its_name, TimePoint now, Outbox& out);
  void begin_proxies(TimePoint now, Outbox& out);
  void receive_values(WorkerId from, const Frame& frame, FrameBytes bytes, TimePoint now,
                      Outbox& out);
  void feed(OpenRound& open, WorkerId from, const Frame& frame, FrameBytes bytes, TimePoint now,
            Outbox& out);
  void receive_control(WorkerId from, const Frame& frame, TimePoint now, Outbox& out);
  void exclude_divergent(TimePoint now, Outbox& out);

  const EngineOptions options_;
  MemberView members_;
  RoundTable rounds_;
  ControlSender sender_;
  std::vector<HubRecord> decisions_;  // at a hub: not yet taken
  DivergentResults divergent_;
  CommitProtocol commit_;
  ProxyRounds proxies_;
  Rollback rollback_;
  ReachabilityReports reports_;  // at the coordinator
  MembershipProtocol epochs_;
  StartBarrier barrier_;
  PeerLosses losses_;
  RoundRepair repair_;
  HubRecovery hub_;
  std::vector<std::pair<WorkerId, std::vector<std::byte>>> notes_;  // received and not taken
};

}  // namespace isthmus
