// SPDX-License-Identifier: Apache-2.0
// Members that are there, but hold the others up or come to other results: they are left out, and
// join again with the others' state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/peer_exchange_engine.h"

namespace isthmus {

/// Whether the run goes on without this member. Who is only slow is worth waiting for otherwise.
bool ExchangeEngine::can_spare(Rank peer) const {
  const int left = membership_.count() - (membership_.leaves(peer) ? 0 : 1);
  return peer != coordinator() && membership_.live(peer) && left >= options_.min_members;
}

void ExchangeEngine::leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out) {
  const auto found = rounds_.find(id);
  if (!options_.elastic || over_ || found == rounds_.end() || found->second.closed ||
      found->second.failure) {
    return;
  }
  std::vector<Rank> behind;
  for (const Rank peer : peers()) {
    const Round& round = found->second.round;
    if (can_spare(peer) && membership_.takes_part(peer, id.sent) &&
        (round.nothing_from(peer) || (groups && round.no_partial_from(peer)))) {
      behind.push_back(peer);
    }
  }
  for (const Rank peer : behind) {
    const std::string why =
        fmt::format("worker {} has waited long for it to begin the round of fragment {} of step {}",
                    options_.self.value(), id.fragment.value(), id.sent.value());
    if (!coordinates()) {
      send({.kind = FrameKind::kGone,
            .part = static_cast<std::uint32_t>(peer.value()),
            .offset = kStraggles},
           coordinator(), std::as_bytes(std::span(why)), out);
    } else if (can_spare(peer)) {
      exclude(peer, why, now, out);
    }
  }
}

/// Of a round whose results differ: those who are not with the greater half are to be left out.
/// Once each: who differs again after it has taken over the others' state does not compute alike.
/// RETURNS: false when there is no such half, or it cannot do without the rest.
bool ExchangeEngine::single_out(const SyncId& id, const std::map<Rank, Digest128>& digests) {
  const auto with = [&](const Digest128& digest) {
    return static_cast<std::size_t>(
        std::ranges::count_if(digests, [&](const auto& each) { return each.second == digest; }));
  };
  const auto half = std::ranges::find_if(
      digests, [&](const auto& each) { return 2 * with(each.second) > digests.size(); });
  if (!options_.elastic || half == digests.end() ||
      static_cast<int>(with(half->second)) < options_.min_members) {
    return false;
  }
  std::map<Rank, std::string> odd;
  for (const auto& [rank, digest] : digests) {
    if (digest == half->second) continue;
    if (rank == coordinator() || once_odd_.contains(rank)) return false;
    odd[rank] = fmt::format(
        "its result of fragment {} of step {} differs: digest {}, that of {} workers is {}",
        id.fragment.value(), id.sent.value(), digest.hex(), with(half->second), half->second.hex());
  }
  odd_.merge(odd);
  return true;
}

void ExchangeEngine::exclude_the_odd(TimePoint now, Outbox& out) {
  for (const auto& [rank, why] : std::exchange(odd_, {})) {
    if (!membership_.live(rank) || over_) continue;
    once_odd_.insert(rank);
    exclude(rank, why, now, out);
  }
}

}  // namespace isthmus
