// SPDX-License-Identifier: Apache-2.0
// Rounds whose commit is left to a later round, in a group whose members may be lost
// (PeerExchangeOptions::takes_back). The exchange does not know how their results were used, so it
// cannot begin such a round again by itself: a loss rolls back all uncommitted rounds. The program
// then returns to the last step with a committed round. That step is the same at all remaining
// members: a commit needs all of them, and the EPOCH frame names the committed rounds. The ids of
// rolled-back rounds are used again; frames from before the loss carry an earlier membership number
// and are foreign. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

class Rollback {
 public:
  /// Borrows all.
  Rollback(const EngineOptions& options, MemberView& members, RoundTable& rounds,
           CommitProtocol& commit)
      : options_(options), members_(members), rounds_(rounds), commit_(commit) {}

  /// Whether uncommitted results have been handed out, or were rolled back and the program does not
  /// know it yet.
  [[nodiscard]] bool uncommitted() const;
  /// The program knows of the rollback: the rounds that it begins next count. RETURNS: the newest
  /// step after which a round sent was committed here; 0: none.
  StepIndex go_back();

  /// A new membership without a lost member: rolls back all uncommitted rounds.
  void take_back();
  /// A program that has not gone back begins a round: the round is rolled back at once. RETURNS:
  /// false when no rollback is pending, so that the round may begin.
  [[nodiscard]] bool absorbs(const SyncId& id);
  /// Whether the round was rolled back, and `take` has not reported it.
  [[nodiscard]] bool took_back(const SyncId& id) const { return taken_back_.contains(id); }
  /// RETURNS: the error of a rolled-back round; nothing if the round was not rolled back.
  [[nodiscard]] std::optional<ExchangeError> take(const SyncId& id);
  /// The cause of the rollback, for people.
  [[nodiscard]] std::string why() const { return why_.value_or(""); }
  /// Whether the progress that a frame reports (closed_before) is about rounds that count now. An
  /// EPOCH frame never counts: its sender sends it before it enters that membership.
  [[nodiscard]] bool speaks_of_now(const FrameHeader& head) const;

 private:
  const EngineOptions& options_;
  MemberView& members_;
  RoundTable& rounds_;
  CommitProtocol& commit_;
  std::optional<std::string> why_;  // until the program has gone back
  std::set<SyncId> taken_back_;     // begun, and the program not yet told
};

}  // namespace isthmus
