// SPDX-License-Identifier: Apache-2.0
// Members that others report as gone, and what the coordinator makes of it.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

constexpr std::size_t kMaxWords = 1000;  // of why a member is gone

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

/// Something waits for it yet, or the word on it may not have come.
void ExchangeEngine::lose_again(Rank peer, TimePoint now, Outbox& out) {
  const Peer& state = peer_[index(peer)];
  lose(peer, std::string(state.why), now, out, state.cause);
}

void ExchangeEngine::report(Rank peer, LossCause cause, const std::string& why, Outbox& out) {
  std::uint64_t how = 0;
  if (cause == LossCause::kStalled) how = kStalls;
  if (cause == LossCause::kGivenUp) how = kGivesUp;
  send({.kind = FrameKind::kGone, .part = static_cast<std::uint32_t>(peer.value()), .offset = how},
       coordinator(), std::as_bytes(std::span(why)).first(std::min(why.size(), kMaxWords)), out);
}

void ExchangeEngine::take_gone(Rank from, const Frame& frame, TimePoint now, Outbox& out) {
  const FrameHeader& head = frame.header;
  const bool known = head.part < static_cast<std::uint32_t>(options_.members) &&
                     head.part != static_cast<std::uint32_t>(coordinator().value());
  const Rank peer(known ? static_cast<int>(head.part) : 0);
  // What was seen before it came back is no news.
  if (!options_.elastic || !coordinates() || !known || over_ || !membership_.live(peer) ||
      !live(from) || head.epoch < membership_.came_in(peer)) {
    return;
  }
  const std::string_view why(reinterpret_cast<const char*>(frame.payload.data()),
                             std::min(frame.payload.size(), kMaxWords));
  if (head.offset == kStalls) {
    rifts_.note(from, peer, std::string(why), now);
  } else if (head.offset == kGivesUp) {
    rifts_.note(peer, from, {}, now);
  } else if (head.offset != kStraggles) {
    // Who gives another up hangs up on it, which may be seen before the word on it comes.
    if (rifts_.open(peer, from)) return;
    exclude(peer, fmt::format("worker {} has lost it: {}", from.value(), why), now, out);
  } else if (can_spare(peer)) {
    exclude(peer, std::string(why), now, out);
  }
}

/// Without its values nothing goes on, and nobody else can take the coordinator's place.
void ExchangeEngine::settle_rifts(TimePoint now, Outbox& out) {
  std::set<Rank> members;
  for (int m = 0; m < options_.members && !over_; ++m) {
    if (live(Rank(m))) members.insert(Rank(m));
  }
  const auto gone = rifts_.settle(now, coordinator(), members);
  for (const auto& [who, why] : gone) {
    if (who == options_.self) {
      finish_with({ExchangeError::Kind::kPeerLost, who,
                   fmt::format("worker {} reaches none of several others with values, and nothing "
                               "goes on without it: {}",
                               who.value(), why)});
      return;
    }
    exclude(who, why, now, out);
  }
}

}  // namespace isthmus
