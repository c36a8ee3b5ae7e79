// SPDX-License-Identifier: Apache-2.0
// Members that meet before a run begins, and processes that follow one another in a member's place.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

// A member that is met may be the end of a former life of its process, which has not noticed yet
// that the run before is over. So none of that counts before all have met: neither its going, nor
// what it had sent.
bool ExchangeEngine::hold(Rank from, FrameKind kind, const FrameBytes& bytes) {
  if (!gathers_ || kind == FrameKind::kNote) {
    return false;
  }
  held_.emplace_back(from, bytes);
  return true;
}

void ExchangeEngine::let_go(Rank peer) {
  std::erase_if(held_, [&](const auto& each) { return each.first == peer; });
}

void ExchangeEngine::start(std::span<const std::uint64_t> met, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(gathers_);
  ISTHMUS_CHECK(met.size() == returns_.size(), met.size(), returns_.size());
  gathers_ = false;
  for (const Rank peer : everyone_else()) {
    const Peer& state = peer_[index(peer)];
    const bool anew = returns_[index(peer)] != met[index(peer)];
    if (!anew && !state.lost) {
      continue;
    }
    const bool stands = !state.lost;
    if (anew) {
      lose(peer, "its process has been started anew", now, out);
    } else {
      lose_again(peer, now, out);
    }
    if (stands) welcome_back(peer, now, out);
  }
  for (auto& [from, bytes] : std::exchange(held_, {})) {
    receive(from, std::move(bytes), now, out);
  }
}

void ExchangeEngine::stand_aside() {
  ISTHMUS_CHECK(rounds_.empty() && last_begun_ == StepIndex(0), rounds_.size());
  membership_ = Membership(options_.members, options_.epoch, false);
  is_member_ = false;
  over_.reset();
  gathers_ = false;
  held_.clear();
  ahead_.clear();
  early_.clear();
  ahead_of_here_.clear();
  epochs_.clear();
}

/// Rounds that are begun later would wait for it too, though its next process may be there by then:
/// that is of another start.
void ExchangeEngine::end_without_coordinator(const std::string& why) {
  if (over_) {
    return;
  }
  finish_with({ExchangeError::Kind::kPeerLost, coordinator(),
               fmt::format("worker {} is gone ({}), and nothing goes on without it",
                           coordinator().value(), why)});
}

void ExchangeEngine::welcome_back(Rank peer, TimePoint now, Outbox& out) {
  Peer& state = peer_[index(peer)];
  ++returns_[index(peer)];
  state.lost = false;
  state.left = false;
  state.fresh = true;
  if (gathers_ || !options_.elastic || !live(peer) || over_ || state.unheard) {
    return;
  }
  if (coordinates()) {
    exclude(peer, "its process has been started anew", now, out);
    state.lost = false;  // that was the former one
    state.fresh = true;
    return;
  }
  for (auto& [id, open] : rounds_) {
    const bool over = options_.takes_back ? is_committed(open) : open.closed;
    if (!over && !open.failure && membership_.takes_part(peer, id.sent)) {
      announce(open, {peer}, out);
      open.round.send_anew(peer, out);
    }
  }
}

}  // namespace isthmus
