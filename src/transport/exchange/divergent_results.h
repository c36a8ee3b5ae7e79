// SPDX-License-Identifier: Apache-2.0
// Members whose result of a round differs from the result of more than half of the members. The
// coordinator excludes such a member, which then rejoins with the state of the others. A member
// that diverges a second time computes differently, so it is not excluded again: the round fails
// instead. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/hash.h"
#include "isthmus/transport.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/peer_exchange_options.h"

namespace isthmus {

class DivergentResults {
 public:
  /// Borrows both.
  DivergentResults(const EngineOptions& options, const MemberView& members)
      : options_(options), members_(members) {}

  /// Adds to the list for take() the members whose digest differs from that of more than half of
  /// `digests`. RETURNS: true where such a majority agrees, also with all. False without `elastic`,
  /// without such a majority, with a majority smaller than min_members, or when the coordinator or
  /// a member excluded before is among the rest.
  [[nodiscard]] bool single_out(const SyncId& id, const std::map<WorkerId, Digest128>& digests);
  /// The members to leave out, and why, since the last call.
  [[nodiscard]] std::map<WorkerId, std::string> take() { return std::exchange(found_, {}); }
  /// `member` is being excluded.
  void excluded(WorkerId member) { once_excluded_.insert(member); }

 private:
  const EngineOptions& options_;
  const MemberView& members_;
  std::map<WorkerId, std::string> found_;
  std::set<WorkerId> once_excluded_;
};

}  // namespace isthmus
