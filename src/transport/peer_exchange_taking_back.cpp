// SPDX-License-Identifier: Apache-2.0
// Rounds that leave their commit to a later one, in a group whose members may be lost. What their
// results were used for is not known here, so no such round can be begun again by itself: an epoch
// that loses a member takes back all that is not committed, and whoever begins rounds goes back to
// the last step of which one was, which is the same at all who are left: nothing is committed
// without any of them, and the news name what was. The ids of the rounds taken back come again;
// frames of before name an earlier epoch and are foreign.
#include <fmt/format.h>

#include <algorithm>

#include "transport/peer_exchange_engine.h"

namespace isthmus {

/// By its own verdict, or that of a round that covers it.
bool ExchangeEngine::is_committed(const OpenRound& open) {
  return open.closed && (open.commit || open.covered);
}

bool ExchangeEngine::uncommitted() const {
  if (!options_.takes_back) return false;
  return why_ || !uncovered_.empty() || std::ranges::any_of(rounds_, [](const auto& entry) {
           return !entry.second.closed && !entry.second.covers.empty();
         });
}

StepIndex ExchangeEngine::go_back() {
  why_.reset();
  taken_back_.clear();
  return committed_after_;
}

/// Of a frame: whether what it says of rounds that are through is of those that count now. News are
/// sent before who sends them has entered what they tell.
bool ExchangeEngine::speaks_of_now(const FrameHeader& head) const {
  return (!options_.takes_back && !is_hub()) ||
         (head.kind != FrameKind::kEpoch && head.epoch >= membership_.whole());
}

// What others have closed, they may have to begin again; they say anew how far they are.
void ExchangeEngine::take_back() {
  dones_.clear();
  if (!options_.takes_back && !is_hub()) return;  // what is open begins again by itself
  for (Peer& peer : peer_) peer.closed_before = 0;
  bool any = !uncovered_.empty();
  std::erase_if(rounds_, [&](const auto& entry) {
    const auto& [id, open] = entry;
    if (open.failure || is_committed(open)) return false;
    if (!open.taken) taken_back_.insert(id);
    any = true;
    return true;
  });
  if (!any) return;  // where nothing has been begun since, nobody goes back
  uncovered_.clear();
  uncommitted_.clear();
  finished_.clear();
  last_begun_ = committed_after_;
  back_to_ = committed_after_;
  why_ = fmt::format("what has been exchanged since step {} is not committed, and a member is gone",
                     committed_after_.value());
}

}  // namespace isthmus
