// SPDX-License-Identifier: Apache-2.0
// The rounds of one member: those that are open or whose result has not been taken, the frames of
// rounds that this member has yet to begin, and the last result handed out. How a round becomes
// final: commit_protocol.h. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/transport.h"
#include "transport/exchange/exchange_round.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/moving_shares.h"
#include "transport/exchange/peer_exchange_options.h"

namespace isthmus {

struct OpenRound {
  Round round;
  bool commit = true;
  bool said_done = false;
  bool closed = false;   // through: complete and, where it commits, committed
  bool covered = false;  // without commit of its own: all members are known to be through
  bool taken = false;
  std::optional<ExchangeError> failure;
  std::vector<SyncId> covers;            // uncommitted rounds whose digests its own covers
  Digest128 digest{};                    // what DONE says
  std::vector<std::byte> report = {};    // behind it, where shares move
  std::vector<TimePoint> heard;          // by member: last useful frame
  std::optional<Contribution> retained;  // until it is closed, where it may have to begin again
  std::uint64_t number = 0;              // this member's rounds begun before it, and it
  OwnerResidual residual = {};           // the retained one's, as it was
  std::optional<SyncId> before = {};     // this member had begun last
  /// Begun in this member's name, and not met: since when so many had begun it.
  std::optional<TimePoint> in_its_name = {};
  TimePoint begun = {};

  /// Neither through nor failed.
  [[nodiscard]] bool pending() const { return !closed && !failure; }
  /// By its own verdict, or that of a round that covers it.
  [[nodiscard]] bool is_committed() const { return closed && (commit || covered); }
};

class RoundTable {
 public:
  using Early = std::vector<std::pair<WorkerId, FrameBytes>>;

  /// Borrows all.
  RoundTable(const EngineOptions& options, const MemberView& members, const MovingShares& shares)
      : options_(options), members_(members), shares_(shares) {}

  [[nodiscard]] std::map<SyncId, OpenRound>& all() { return rounds_; }
  [[nodiscard]] const std::map<SyncId, OpenRound>& all() const { return rounds_; }
  /// RETURNS: null where there is none of that name.
  [[nodiscard]] OpenRound* find(const SyncId& id);
  [[nodiscard]] const OpenRound* find(const SyncId& id) const;
  [[nodiscard]] bool contains(const SyncId& id) const { return rounds_.contains(id); }
  /// Whether a round has begun and is not through.
  [[nodiscard]] bool any_pending() const;

  /// Where a round takes place. Valid as long as the engine, even where it begins that very round
  /// in this member's name meanwhile.
  [[nodiscard]] RoundPlace place(const SyncId& id) const;
  /// Whether the fragment's former round is through here, so that the shares it has told are known.
  [[nodiscard]] bool knows_shares(const SyncId& id) const;
  /// REQUIRES: no round of that name, nor one that is over.
  OpenRound& open(OpenRound round);
  /// A round of that name is through and forgotten, or will not be begun any more.
  [[nodiscard]] bool over(const SyncId& id) const;
  /// This member is through with all rounds sent before that step.
  [[nodiscard]] std::int64_t closed_before() const;
  [[nodiscard]] StepIndex last_begun() const { return last_begun_; }
  /// How many rounds this member has begun.
  [[nodiscard]] std::uint64_t begun() const { return begun_; }

  /// Frames of rounds that have not begun here.
  void keep_early(const SyncId& id, WorkerId from, FrameBytes bytes);
  [[nodiscard]] Early take_early(const SyncId& id);
  /// Drops those of earlier epochs. RETURNS: the rounds.
  std::vector<SyncId> drop_outdated_early();
  void clear_early() { early_.clear(); }

  /// The committed result or the round's error. REQUIRES: it is through or has failed.
  [[nodiscard]] Expected<Reduced, ExchangeError> take(const SyncId& id);
  /// The digest of the result taken last, and what it was decoded from, which is empty where it is
  /// not kept; nothing when that was another round's.
  [[nodiscard]] std::optional<std::pair<Digest128, EncodedResult>> origin_of(
      const SyncId& id) const;
  /// Forgets rounds that have been taken and that nobody can ask for any more.
  void forget_taken();
  /// What has been begun since `step` will be begun again.
  void roll_back_to(StepIndex step);

  /// No round of this member ends any more: those that are open fail with `error`, later ones too.
  void end_all(const ExchangeError& error);
  /// The reason, once that is so.
  [[nodiscard]] const std::optional<ExchangeError>& ended() const { return ended_; }
  void revive() { ended_.reset(); }
  /// The reason for which this member cannot go on.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  void set_given_up(std::string why) { given_up_ = std::move(why); }

 private:
  const EngineOptions& options_;
  const MemberView& members_;
  const MovingShares& shares_;
  std::map<SyncId, OpenRound> rounds_;
  std::map<SyncId, Early> early_;
  std::set<SyncId> finished_;  // gone from rounds_, sent at last_begun_
  StepIndex last_begun_;
  std::uint64_t begun_ = 0;
  std::optional<StepIndex> back_to_;  // where rounds were taken back the last time
  std::optional<SyncId> taken_last_;
  std::pair<Digest128, EncodedResult> origin_;  // of that one
  std::optional<std::string> given_up_;
  std::optional<ExchangeError> ended_;
};

}  // namespace isthmus
