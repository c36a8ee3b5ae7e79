// SPDX-License-Identifier: Apache-2.0
// How a round becomes final: a member that has a whole result sends DONE with its digest to the
// coordinator; when all digests agree, the coordinator sends COMMIT to all. A member that finds
// that a round cannot become final (digests differ, a member is lost, bytes do not decode) tells
// the coordinator, which sends ABORT with the reason to all. A round with commit = false is handed
// out when whole; its digest joins that of the next committing round begun after it, which covers
// it. Member's side and coordinator's side, since the coordinator may be a member. Pure.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/transport.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/divergent_results.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/moving_shares.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

/// A round whose result is final at this member, and when it has begun here.
struct ThroughRound {
  SyncId id;
  TimePoint begun;
};

/// The coordinator's word on a round: nothing = committed.
using Verdict = std::optional<ExchangeError>;

class CommitProtocol {
 public:
  /// Of fragments, the last round that is final.
  using Newest = std::map<FragmentId, std::pair<StepIndex, Digest128>>;

  /// Borrows all. `decisions`: a hub's, to be written down before anything is sent.
  CommitProtocol(const MemberView& members, RoundTable& rounds, MovingShares& shares,
                 DivergentResults& divergent, ControlSender& sender,
                 std::vector<HubRecord>& decisions)
      : members_(members),
        rounds_(rounds),
        shares_(shares),
        divergent_(divergent),
        sender_(sender),
        decisions_(decisions) {}

  // At every member.
  /// A round has begun here: it covers those without commit, or is one.
  void begun(OpenRound& open);
  /// Looks at all rounds: hands out those without commit that are whole, says DONE of the others.
  void progress(Outbox& out);
  /// Says DONE again of a round, or of all that have no verdict, which may have been lost.
  void repeat_done(const OpenRound& open, Outbox& out);
  void repeat_all_done(Outbox& out);
  /// A round cannot become final. The failure stands here at once; what it means for the others is
  /// the coordinator's word.
  void fail(OpenRound& open, const ExchangeError& error, Outbox& out);
  /// Fails every round, open or yet to begin: the member itself cannot go on.
  void give_up(const std::string& why, Outbox& out);
  /// Frames COMMIT and ABORT. REQUIRES of COMMIT: it is from the coordinator.
  void take_commit(const SyncId& id, std::span<const std::byte> payload, Outbox& out);
  void take_abort(WorkerId from, const Frame& frame, Outbox& out);
  /// The round is final.
  void close(OpenRound& open);
  void tell(WorkerId to, const SyncId& id, const Verdict& verdict, Outbox& out);
  /// Forgets rounds and verdicts that nobody can ask for any more.
  void forget_closed();

  // At the coordinator.
  /// Frame DONE.
  void take_done(WorkerId from, const Frame& frame, Outbox& out);
  /// A round that has no verdict waits for that member too, from which this one may want nothing
  /// else. It may have missed the news of who takes part, as it may where a later round's verdict
  /// is to cover this one. `wanted`: the round, or one that covers it, gets a verdict.
  [[nodiscard]] bool waits_for_digest(const OpenRound& open, WorkerId peer, bool wanted) const;
  [[nodiscard]] bool has_digest(const SyncId& id, WorkerId peer) const;
  /// Digests of the round have come, and none of that member.
  [[nodiscard]] bool lacks_digest(const SyncId& id, WorkerId peer) const;
  /// Digests of rounds that begin again.
  void forget_digests() { dones_.clear(); }
  /// The rounds that somebody may not know to be committed.
  [[nodiscard]] std::vector<SyncId> committed() const;

  // Of rounds without commit.
  /// Rounds have begun without commit, and no round that covers them has.
  [[nodiscard]] bool any_uncovered() const { return !uncovered_.empty(); }
  /// They are taken back.
  void forget_uncovered();
  /// The last step of which a round is committed here; 0: none.
  [[nodiscard]] StepIndex committed_after() const { return committed_after_; }

  // At a hub.
  /// Another run begins, or the records of the process before are about to be restored.
  void restart();
  void restore(const SyncId& id, const Digest128& digest);
  /// The records of all that a next process needs to know of commits.
  [[nodiscard]] std::vector<HubRecord> history() const;

  [[nodiscard]] const Newest& newest() const { return newest_; }
  /// Rounds that have become final here since the last call, as `Reduced` can be handed out.
  [[nodiscard]] std::vector<ThroughRound> take_through() { return std::exchange(through_, {}); }

 private:
  void say_done(OpenRound& open, Outbox& out);
  void count_done(WorkerId from, const SyncId& id, const Digest128& digest, Outbox& out);
  void refuse_done(WorkerId from, const Frame& frame, Outbox& out);
  [[nodiscard]] Verdict verdict_of(WorkerId from, const SyncId& id, const Digest128& digest) const;
  void judge(const SyncId& id, const Verdict& verdict, Outbox& out);
  void take_verdict(const SyncId& id, const Verdict& verdict);
  [[nodiscard]] bool through_everywhere(const SyncId& id) const;
  void note_final(const SyncId& id, const Digest128& digest);

  const MemberView& members_;
  RoundTable& rounds_;
  MovingShares& shares_;
  DivergentResults& divergent_;
  ControlSender& sender_;
  std::vector<HubRecord>& decisions_;
  std::vector<SyncId> uncovered_;            // begun without commit, in order of begin
  std::map<SyncId, Digest128> uncommitted_;  // digests of complete ones, until covered
  StepIndex committed_after_;
  Newest newest_;
  std::vector<ThroughRound> through_;
  // At the coordinator: digests that came in; verdicts, kept for whoever missed them.
  std::map<SyncId, std::map<WorkerId, Digest128>> dones_;
  std::map<SyncId, Verdict> verdicts_;
  std::map<SyncId, Digest128> committed_;  // at a hub: of its verdicts
};

}  // namespace isthmus
