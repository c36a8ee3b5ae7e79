// SPDX-License-Identifier: Apache-2.0
// The rounds of one member: open rounds, rounds whose result has not been taken, frames of rounds
// that have not begun here, and the last result handed out. How a round becomes final:
// commit_protocol.h. Pure.
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
#include "transport/exchange/peer_exchange_options.h"

namespace isthmus {

struct OpenRound {
  Round round;
  bool commit = true;
  bool said_done = false;
  bool closed = false;   // final: complete, and committed if it commits
  bool covered = false;  // without commit: it is final at all members
  bool taken = false;
  std::optional<ExchangeError> failure;
  std::vector<SyncId> covers;    // uncommitted rounds whose digests its digest includes
  Digest128 digest{};            // as sent in DONE
  std::vector<TimePoint> heard;  // by member: last useful frame
  std::optional<SharedContribution> retained;  // until closed, if it may have to begin again
  std::uint64_t number = 0;                    // place among the rounds begun here, from 1
  OwnerResidual residual = {};                 // of the retained contribution, before the round
  std::optional<SyncId> before = {};           // the round begun here before it
  /// Begun by proxy and not reached by training: since when enough members had begun it.
  std::optional<TimePoint> in_its_name = {};
  TimePoint begun = {};

  /// Neither closed nor failed.
  [[nodiscard]] bool pending() const { return !closed && !failure; }
  /// By its own verdict, or by that of a round that covers it.
  [[nodiscard]] bool is_committed() const { return closed && (commit || covered); }
};

class RoundTable {
 public:
  using Early = std::vector<std::pair<WorkerId, FrameBytes>>;

  /// Borrows all.
  RoundTable(const EngineOptions& options, const MemberView& members)
      : options_(options), members_(members) {}

  [[nodiscard]] std::map<SyncId, OpenRound>& all() { return rounds_; }
  [[nodiscard]] const std::map<SyncId, OpenRound>& all() const { return rounds_; }
  /// RETURNS: null if there is no round `id`.
  [[nodiscard]] OpenRound* find(const SyncId& id);
  [[nodiscard]] const OpenRound* find(const SyncId& id) const;
  [[nodiscard]] bool contains(const SyncId& id) const { return rounds_.contains(id); }
  /// Whether a round has begun and is neither closed nor failed.
  [[nodiscard]] bool any_pending() const;

  /// The parameters of round `id`. Valid as long as the engine, even if the engine begins that
  /// round by proxy meanwhile.
  [[nodiscard]] RoundPlace place(const SyncId& id) const;
  /// REQUIRES: no round of that id, also none that is over.
  OpenRound& open(OpenRound round);
  /// The round is final and forgotten, or will never begin.
  [[nodiscard]] bool over(const SyncId& id) const;
  /// All rounds sent before that step are closed here.
  [[nodiscard]] std::int64_t closed_before() const;
  [[nodiscard]] StepIndex last_begun() const { return last_begun_; }
  /// The run has begun here, and no round may be sent at a step before 1.
  void begin_without_round();
  /// How many rounds this member has begun.
  [[nodiscard]] std::uint64_t begun() const { return begun_; }

  /// Frames of rounds that have not begun here.
  void keep_early(const SyncId& id, WorkerId from, FrameBytes bytes);
  [[nodiscard]] Early take_early(const SyncId& id);
  /// Drops frames of earlier membership numbers.
  void drop_outdated_early();
  void clear_early() { early_.clear(); }

  /// The committed result or the round's error. REQUIRES: the round is closed or has failed.
  [[nodiscard]] Expected<Reduced, ExchangeError> take(const SyncId& id);
  /// The digest of the last result taken, and the frames that it was decoded from (empty if not
  /// kept); nothing if the last result was another round's.
  [[nodiscard]] std::optional<std::pair<Digest128, EncodedResult>> origin_of(
      const SyncId& id) const;
  /// Frees those frames, once all who ask for them have had them.
  void drop_origin() const { origin_.second = {}; }
  /// Forgets taken rounds whose frames no member can request any more.
  void forget_taken();
  /// Rounds begun since `step` will begin again with the same ids.
  void roll_back_to(StepIndex step);

  /// No round can end here any more: open and later rounds fail with `error`.
  void end_all(const ExchangeError& error);
  /// That error, once set.
  [[nodiscard]] const std::optional<ExchangeError>& ended() const { return ended_; }
  void revive() { ended_.reset(); }
  /// The reason why this member cannot continue.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  void set_given_up(std::string why) { given_up_ = std::move(why); }

 private:
  const EngineOptions& options_;
  const MemberView& members_;
  std::map<SyncId, OpenRound> rounds_;
  std::map<SyncId, Early> early_;
  std::set<SyncId> finished_;  // forgotten rounds sent at last_begun_
  StepIndex last_begun_;
  std::uint64_t begun_ = 0;
  std::optional<StepIndex> back_to_;  // the step of the last rollback
  std::optional<SyncId> taken_last_;
  /// Of taken_last_. Its frames are a copy for who asks, which changes no round.
  mutable std::pair<Digest128, EncodedResult> origin_;
  std::optional<std::string> given_up_;
  std::optional<ExchangeError> ended_;
};

}  // namespace isthmus
