// SPDX-License-Identifier: Apache-2.0
// Members whose result of a round differs from that of the greater half: the coordinator leaves
// them out, and they join again with the others' state. Once each: a member that differs again
// after it has taken over the others' state does not compute alike. Pure.
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

  /// Notes the members that are not with the greater half of a round's `digests`, to be taken.
  /// RETURNS: false when there is no such half, or it cannot do without the rest.
  [[nodiscard]] bool single_out(const SyncId& id, const std::map<WorkerId, Digest128>& digests);
  /// The members to leave out, and why, since the last call.
  [[nodiscard]] std::map<WorkerId, std::string> take() { return std::exchange(found_, {}); }
  /// One of them is being left out.
  void excluded(WorkerId member) { once_excluded_.insert(member); }

 private:
  const EngineOptions& options_;
  const MemberView& members_;
  std::map<WorkerId, std::string> found_;
  std::set<WorkerId> once_excluded_;
};

}  // namespace isthmus
