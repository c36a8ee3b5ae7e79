// SPDX-License-Identifier: Apache-2.0
// Rounds that leave their commit to a later one, in a group whose members may be lost
// (PeerExchangeOptions::takes_back). What their results were used for is not known here, so no such
// round can be begun again by itself: an epoch that loses a member takes back all that is not
// committed. The program that begins rounds then goes back to the last step of which one was
// committed, which is the same at all members that are left: nothing is committed without any of
// them, and the news name what was. The ids of the rounds taken back come again; frames of before
// name an earlier epoch and are foreign. Pure.
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

  /// Whether results have been handed out that may be taken back, or that were, unknown to the
  /// program that begins rounds.
  [[nodiscard]] bool uncommitted() const;
  /// The rounds taken back are known to be so: the next ones count.
  /// RETURNS: the last step of which a round is committed here; 0: none.
  StepIndex go_back();

  /// An epoch has begun that loses a member: all that is not committed is taken back.
  void take_back();
  /// A round is begun by a program that has not gone back: it is taken back at once.
  /// RETURNS: false where that is not so.
  [[nodiscard]] bool absorbs(const SyncId& id);
  /// Whether that round was taken back, and `take` has not told.
  [[nodiscard]] bool took_back(const SyncId& id) const { return taken_back_.contains(id); }
  /// RETURNS: the error of a round that was taken back; nothing: it was not.
  [[nodiscard]] std::optional<ExchangeError> take(const SyncId& id);
  /// Why rounds were taken back, for people.
  [[nodiscard]] std::string why() const { return why_.value_or(""); }
  /// Of a frame: whether what it says of rounds that are through is of those that count now. News
  /// are sent before their sender has entered what they tell.
  [[nodiscard]] bool speaks_of_now(const FrameHeader& head) const;

 private:
  const EngineOptions& options_;
  MemberView& members_;
  RoundTable& rounds_;
  CommitProtocol& commit_;
  std::optional<std::string> why_;  // while the program that begins rounds has not gone back
  std::set<SyncId> taken_back_;     // begun, and nobody has been told
};

}  // namespace isthmus
