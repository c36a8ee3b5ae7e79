// SPDX-License-Identifier: Apache-2.0
// How a round becomes final: a member that has a whole result sends DONE with its digest to the
// coordinator; when all digests agree, the coordinator sends COMMIT to all. A member that finds
// that a round cannot become final (digests differ, a member is lost, bytes do not decode) tells
// the coordinator, which sends ABORT with the reason to all. A round with commit = false is handed
// out when its result is complete. The next committing round that begins after it covers it: the
// digest of that round includes the digest of the covered one. The class holds the member's side
// and the coordinator's side, since the coordinator may be a member. Pure.
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
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

/// A round whose result is final at this member, and the time at which this member began it.
struct ThroughRound {
  SyncId id;
  TimePoint begun;
};

/// The coordinator's decision on a round: no value means committed, an error means aborted.
using Verdict = std::optional<ExchangeError>;

class CommitProtocol {
 public:
  /// By fragment: its newest final round and the digest of that round's result.
  using Newest = std::map<FragmentId, std::pair<StepIndex, Digest128>>;

  /// Borrows all. `decisions`: a hub's records, which the caller writes to the log before it sends
  /// a frame.
  CommitProtocol(const MemberView& members, RoundTable& rounds, DivergentResults& divergent,
                 ControlSender& sender, std::vector<HubRecord>& decisions)
      : members_(members),
        rounds_(rounds),
        divergent_(divergent),
        sender_(sender),
        decisions_(decisions) {}

  // At every member.
  /// A round has begun here. A committing round covers the uncommitted rounds begun before it.
  void begun(OpenRound& open);
  /// Checks all rounds: closes complete rounds without commit, and sends DONE for complete rounds
  /// with it.
  void progress(Outbox& out);
  /// Sends DONE again for one round, or for all rounds without a verdict: a DONE may have been
  /// lost.
  void repeat_done(const OpenRound& open, Outbox& out);
  void repeat_all_done(Outbox& out);
  /// The round cannot become final. It fails at this member at once; the coordinator decides what
  /// the other members do.
  void fail(OpenRound& open, const ExchangeError& error, Outbox& out);
  /// Fails every round, open or yet to begin: this member cannot continue.
  void give_up(const std::string& why, Outbox& out);
  /// Frames COMMIT and ABORT. REQUIRES: a COMMIT comes from the coordinator.
  void take_commit(const SyncId& id, std::span<const std::byte> payload, Outbox& out);
  void take_abort(WorkerId from, const Frame& frame, Outbox& out);
  /// The round is final.
  void close(OpenRound& open);
  void tell(WorkerId to, const SyncId& id, const Verdict& verdict, Outbox& out);
  /// Forgets rounds and verdicts that no member can ask for any more.
  void forget_closed();

  // At the coordinator.
  /// Frame DONE.
  void take_done(WorkerId from, const Frame& frame, Outbox& out);
  /// True when the coordinator (this member) still needs `peer`'s digest of the open round `open`.
  /// `peer` may have missed the EPOCH that tells it to take part. `wanted`: the caller waits for a
  /// verdict on this round or on a round that covers it.
  [[nodiscard]] bool waits_for_digest(const OpenRound& open, WorkerId peer, bool wanted) const;
  [[nodiscard]] bool has_digest(const SyncId& id, WorkerId peer) const;
  /// Some digests of the round have arrived, but none from `peer`.
  [[nodiscard]] bool lacks_digest(const SyncId& id, WorkerId peer) const;
  /// Drops the digests: their rounds begin again.
  void forget_digests() { dones_.clear(); }
  /// Committed rounds that some member may not know to be committed.
  [[nodiscard]] std::vector<SyncId> committed() const;

  // Of rounds without commit.
  /// Rounds without commit have begun, and no round that covers them has begun yet.
  [[nodiscard]] bool any_uncovered() const { return !uncovered_.empty(); }
  /// The uncovered rounds are rolled back.
  void forget_uncovered();
  /// The newest step after which a round sent was committed here; 0: none.
  [[nodiscard]] StepIndex committed_after() const { return committed_after_; }

  // At a hub.
  /// Another run begins, or the records of the previous hub process are about to be restored.
  void restart();
  void restore(const SyncId& id, const Digest128& digest);
  /// Records of all commits that the next hub process needs.
  [[nodiscard]] std::vector<HubRecord> history() const;

  [[nodiscard]] const Newest& newest() const { return newest_; }
  /// Rounds that became final here since the last call, when their results became available.
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
  DivergentResults& divergent_;
  ControlSender& sender_;
  std::vector<HubRecord>& decisions_;
  std::vector<SyncId> uncovered_;            // begun without commit, in order of begin
  std::map<SyncId, Digest128> uncommitted_;  // digests of complete ones, until covered
  StepIndex committed_after_;
  Newest newest_;
  std::vector<ThroughRound> through_;
  // At the coordinator: received digests, and verdicts, kept for members that missed them.
  std::map<SyncId, std::map<WorkerId, Digest128>> dones_;
  std::map<SyncId, Verdict> verdicts_;
  std::map<SyncId, Digest128> committed_;  // at a hub: digests of its commits
};

}  // namespace isthmus
