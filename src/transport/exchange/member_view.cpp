// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/member_view.h"

#include <algorithm>
#include <utility>

namespace isthmus {

MemberView::MemberView(const EngineOptions& options)
    : options_(options), membership_(options.members, options.exchange.epoch, true) {
  const auto processes = static_cast<std::size_t>(options.members + (options.exchange.hub ? 1 : 0));
  peer_.resize(processes);
  for (Peer& peer : peer_) {
    peer.patience = options.exchange.retry_interval;
    peer.lost = is_hub();  // until it comes
  }
  echoes_.resize(processes);
}

bool MemberView::enter(const Membership& next) {
  membership_ = next;
  return std::exchange(is_member_, is_hub() || live(self()));
}

void MemberView::stand_aside() {
  membership_ = Membership(options_.members, options_.exchange.epoch, false);
  is_member_ = false;
}

std::vector<WorkerId> MemberView::everyone_else() const {
  std::vector<WorkerId> result;
  for (int m = 0; m < options_.members; ++m) {
    if (m != self().value()) {
      result.push_back(WorkerId(m));
    }
  }
  return result;  // a hub shares no rounds
}

std::vector<WorkerId> MemberView::peers() const {
  std::vector<WorkerId> result = everyone_else();
  std::erase_if(result, [&](WorkerId rank) { return !membership_.live(rank); });
  return result;
}

bool MemberView::can_spare(WorkerId peer) const {
  const int left = membership_.count() - (membership_.leaves(peer) ? 0 : 1);
  return peer != coordinator() && membership_.live(peer) && left >= options_.exchange.min_members;
}

// A later joiner has no part in rounds sent then, and has yet to say how far it is: counted with
// the others, it would have a hub take late copies of DONE for a round that is still to be judged.
bool MemberView::all_closed(StepIndex sent) const {
  return std::ranges::all_of(peers(), [&](WorkerId rank) {
    const Peer& state = peer(rank);
    return !membership_.takes_part(rank, sent) || (state.lost && !is_hub()) || state.left ||
           state.closed_before > sent.value();
  });
}

void MemberView::forget_closed() {
  for (Peer& peer : peer_) peer.closed_before = 0;
}

}  // namespace isthmus
