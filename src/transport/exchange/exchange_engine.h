// SPDX-License-Identifier: Apache-2.0
// The protocol of one member of an exchange: frames, losses and begins come in, frames go out. A
// pure state machine; peer_exchange.h drives it under one lock. The engine owns the parts, hands
// each frame to the part that it concerns, and begins rounds:
//   round_table          open rounds and their results
//   exchange_round       data path of one round
//   round_repair         PROBE, ECHO, REQUEST
//   commit_protocol      DONE, COMMIT, ABORT
//   member_view          peers, membership, coordinator
//   membership_protocol  members come and go: EPOCH, BYE
//   peer_losses          members lost and returned: GONE
//   hub_recovery         a hub's process ends and its next one begins
// and what a run may do besides: start_barrier, rollback, proxy_rounds, moving_shares,
// divergent_results.
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
#include "transport/exchange/moving_shares.h"
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

/// What has happened in an engine, for its owner.
struct EngineNews {
  std::vector<ThroughRound> through;  // rounds that have become final
  std::vector<HubRecord> records;     // HubRecovery::take_records
  std::vector<Epoch> epochs;          // ExchangeEngine::take_epochs
  std::optional<ShareMove> move;      // at the coordinator, where shares move: they have
  std::vector<ProxyRound> proxies;    // ProxyRounds::take
};

class ExchangeEngine {
 public:
  explicit ExchangeEngine(EngineOptions options);
  ExchangeEngine(const ExchangeEngine&) = delete;
  ExchangeEngine& operator=(const ExchangeEngine&) = delete;

  /// Opens a round made from `rounds().place()`. `retained`: the contribution it was made of, where
  /// `elastic`. REQUIRES: the rules of Exchange::begin.
  void begin(Round round, bool commit, std::optional<Contribution> retained, TimePoint now,
             Outbox& out);
  /// As `begin`, of a round that was begun in this member's name: its own contribution is too late.
  /// RETURNS: false when it was not. `begin` asks too; asked before, no round is made in vain.
  [[nodiscard]] bool meet(const SyncId& id, TimePoint now);
  /// Takes a frame as it came. Damaged and foreign ones are dropped: what they carried is missing
  /// and will be asked for.
  void receive(WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out);
  /// The transport's news, in its order: `peer` is gone, once a loss.
  void lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out,
            LossCause cause = LossCause::kGone);
  /// ... and links to a new process of it stand, to which nothing has been sent yet. It is no
  /// member by that; where it is one, the news of its admission was faster.
  void welcome_back(WorkerId peer, TimePoint now, Outbox& out);
  /// The members have met, with `gathers`. `met`: how often each had been welcomed back when it was
  /// met; a member that has been lost since, or started anew, counts as lost from now on.
  void start(std::span<const std::uint64_t> met, TimePoint now, Outbox& out);
  /// This member takes part only once an epoch says so: the run goes on without it.
  /// REQUIRES: nothing has been begun.
  void stand_aside();
  /// At the coordinator: `joiner` takes part in rounds sent after step `after`, which nobody has
  /// begun.
  /// RETURNS: false when it is a member, or lost. REQUIRES: links between it and all members.
  bool admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out);
  /// At the coordinator: rounds sent after step `after`, which nobody has begun, are without
  /// `member`; those sent before end with it, then it says goodbye and is gone. RETURNS: false when
  /// it is none, or leaves already, or too few would be left.
  bool release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out);
  /// At a hub: `peer` is gone; a hub counts nobody as gone by its own links alone. No member: no
  /// news.
  void exclude(WorkerId peer, const std::string& why, TimePoint now, Outbox& out);
  /// Fails every round, open or yet to begin: the member itself cannot go on.
  void give_up(const std::string& why, Outbox& out) { commit_.give_up(why, out); }
  /// The member has waited long for this round: a member that has not begun it is left out, where
  /// the run can go on without. `groups`: it has waited longer, and nobody of a group has named the
  /// member that has not: the one that was to send the group's partials is left out.
  void leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out);
  /// Sends PROBE to all that this round waits for, who need not answer.
  void ask(const SyncId& id, Outbox& out);
  /// Probes, repeats, begins what is due. Harmless when called early or by two tasks.
  void tick(TimePoint now, Outbox& out);
  /// When `tick` has something to look at; kNever while nothing is open.
  [[nodiscard]] TimePoint next_tick() const;

  /// True when `take` has an answer.
  [[nodiscard]] bool ready(const SyncId& id) const;
  /// The committed result or the round's error. REQUIRES: ready(id).
  [[nodiscard]] Expected<Reduced, ExchangeError> take(const SyncId& id);
  /// Who and what a round waits for, for people.
  [[nodiscard]] std::string describe(const SyncId& id) const;

  /// A frame for the program of another member, beside the rounds.
  void note(WorkerId to, std::span<const std::byte> bytes, Outbox& out);
  /// Those that have come since the last call, in order of arrival.
  [[nodiscard]] std::vector<std::pair<WorkerId, std::vector<std::byte>>> take_notes();

  /// A member that goes while the others go on may say goodbye once its rounds have ended.
  [[nodiscard]] bool may_leave() const;
  /// Says goodbye: nothing will be begun or waited for any more; others are still served.
  void leave(Outbox& out);
  /// True when every peer has said goodbye or is lost; to a hub, a lost one has not left. Of one
  /// that goes alone, when the coordinator has taken note, or is lost.
  [[nodiscard]] bool all_left() const;

  /// Members that have come and gone since the last call, one entry each.
  [[nodiscard]] std::vector<Epoch> take_epochs() { return epochs_.take_epochs(); }
  /// Everything since the last call.
  [[nodiscard]] EngineNews take_news();

  // The parts that its owner asks directly.
  [[nodiscard]] const MemberView& members() const { return members_; }
  [[nodiscard]] const RoundTable& rounds() const { return rounds_; }
  [[nodiscard]] ProxyRounds& proxies() { return proxies_; }
  [[nodiscard]] const ProxyRounds& proxies() const { return proxies_; }
  [[nodiscard]] Rollback& rollback() { return rollback_; }
  [[nodiscard]] const Rollback& rollback() const { return rollback_; }
  [[nodiscard]] HubRecovery& hub() { return hub_; }
  [[nodiscard]] const HubRecovery& hub() const { return hub_; }

 private:
  void open(Round round, bool commit, std::optional<Contribution> retained,
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
  MovingShares shares_;
  RoundTable rounds_;
  ControlSender sender_;
  std::vector<HubRecord> decisions_;  // at a hub: decided and not taken
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
  std::vector<std::pair<WorkerId, std::vector<std::byte>>> notes_;  // come and not taken
};

}  // namespace isthmus
