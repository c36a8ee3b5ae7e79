// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/peer_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

namespace isthmus {
namespace {

constexpr std::size_t kMaxWords = 1000;  // of why a member is gone

}  // namespace

void PeerLosses::lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out,
                      LossCause cause) {
  Peer& state = at_.members.peer(peer);
  const bool coordinates = at_.members.coordinates();
  state.lost = true;
  state.why = why;
  state.cause = cause;
  if (at_.members.live(peer)) state.fresh = false;
  if (at_.barrier.closed()) {
    at_.barrier.drop_from(peer);
    return;
  }
  if (options_.exchange.hub) {
    if (at_.members.is_hub())
      return;  // its owner waits a moment: it may be the hub that is cut off
    if (alone()) {
      at_.epochs.cut_off(why);
      return;
    }
    if (peer == at_.members.coordinator()) return;
  }
  if (!options_.exchange.elastic || peer == at_.members.coordinator()) {
    fail_what_needs(peer, out);
    if (options_.exchange.elastic && !state.left) end_without_coordinator(why);
  } else if (coordinates && !at_.rounds.ended() && membership().leaves(peer) && state.left &&
             !needs(peer)) {
    at_.epochs.part_with(peer, now, out);  // it said goodbye when something still needed it
  } else if (!at_.rounds.ended() && membership().live(peer) && (!state.left || needs(peer))) {
    if (coordinates && cause == LossCause::kStalled) {
      at_.reports.note(options_.self, peer, why, now);
    } else if (coordinates && cause == LossCause::kGivenUp) {
      at_.reports.note(peer, options_.self, {}, now);
    } else if (coordinates) {
      at_.epochs.exclude(peer, why, now, out);
    } else if (at_.rounds.any_pending()) {
      // Until something waits for it, the coordinator will see for itself.
      report(peer, cause, why, out);
    }
  }
}

void PeerLosses::lose_again(WorkerId peer, TimePoint now, Outbox& out) {
  const Peer& state = at_.members.peer(peer);
  lose(peer, std::string(state.why), now, out, state.cause);
}

void PeerLosses::lose_again_all(TimePoint now, Outbox& out) {
  if (!options_.exchange.elastic) return;
  for (const WorkerId rank : at_.members.peers()) {
    if (at_.members.peer(rank).lost && at_.rounds.any_pending()) lose_again(rank, now, out);
  }
}

void PeerLosses::welcome_back(WorkerId peer, TimePoint now, Outbox& out) {
  Peer& state = at_.members.peer(peer);
  at_.barrier.count_return(peer);
  state.lost = false;
  state.left = false;
  state.fresh = true;
  if (at_.barrier.closed() || !options_.exchange.elastic || !at_.members.live(peer) ||
      at_.rounds.ended() || state.unheard) {
    return;
  }
  if (at_.members.coordinates()) {
    at_.epochs.exclude(peer, "its process has been started anew", now, out);
    state.lost = false;  // that was the former one
    state.fresh = true;
    return;
  }
  for (auto& [id, open] : at_.rounds.all()) {
    const bool over = options_.exchange.takes_back ? open.is_committed() : open.closed;
    if (!over && !open.failure && membership().takes_part(peer, id.sent)) {
      at_.proxies.announce(open, {peer}, out);
      open.round.send_anew(peer, out);
    }
  }
}

/// To the coordinator.
void PeerLosses::report(WorkerId peer, LossCause cause, const std::string& why, Outbox& out) {
  std::uint64_t how = 0;
  if (cause == LossCause::kStalled) how = kStalls;
  if (cause == LossCause::kGivenUp) how = kGivesUp;
  at_.sender.send(
      {.kind = FrameKind::kGone, .part = static_cast<std::uint32_t>(peer.value()), .offset = how},
      at_.members.coordinator(),
      std::as_bytes(std::span(why)).first(std::min(why.size(), kMaxWords)), out);
}

// A complete result still needs its verdict, which is given once every digest is there. An
// incomplete result cannot become complete without a member that has not left in order.
void PeerLosses::fail_what_needs(WorkerId peer, Outbox& out) {
  for (auto& [id, open] : at_.rounds.all()) {
    if (!open.pending()) {
      continue;
    }
    const bool needs_data =
        !open.round.complete() && (!at_.members.peer(peer).left || open.round.owes(peer));
    const bool needs_digest = at_.members.coordinates() && !at_.commit.has_digest(id, peer);
    const bool needs_verdict = peer == at_.members.coordinator();
    if (needs_data || (open.round.complete() && (needs_digest || needs_verdict))) {
      at_.commit.fail(open,
                      {ExchangeError::Kind::kPeerLost, peer,
                       fmt::format("worker {} is gone, and fragment {} of step {} still needs it",
                                   peer.value(), id.fragment.value(), id.sent.value())},
                      out);
    }
  }
}

/// Rounds that are begun later would wait for it too, though its next process may be there by then:
/// that is of another start.
void PeerLosses::end_without_coordinator(const std::string& why) {
  if (at_.rounds.ended()) {
    return;
  }
  const WorkerId coordinator = at_.members.coordinator();
  at_.rounds.end_all({ExchangeError::Kind::kPeerLost, coordinator,
                      fmt::format("worker {} is gone ({}), and nothing goes on without it",
                                  coordinator.value(), why)});
}

/// Whether some round here cannot end without more from a peer that has taken leave.
bool PeerLosses::needs(WorkerId peer) const {
  return std::ranges::any_of(at_.rounds.all(), [&](const auto& entry) {
    const auto& [id, open] = entry;
    if (!open.pending() || !membership().takes_part(peer, id.sent)) {
      return false;
    }
    const bool no_digest = at_.members.coordinates() && !at_.commit.has_digest(id, peer);
    return open.round.owes(peer) || no_digest;
  });
}

/// Whether this member, which has lost the hub, has lost all others too. Those that have left in
/// order are not lost, a run of one member just waits for its hub, and before the first round there
/// is nothing to be cut off from: a member that is away may still be on its way.
bool PeerLosses::alone() const {
  if (at_.rounds.all().empty() && at_.rounds.last_begun() == StepIndex(0)) return false;
  const std::vector<WorkerId> others = at_.members.peers();
  const auto lost = [&](WorkerId rank) { return at_.members.peer(rank).lost; };
  const auto left = [&](WorkerId rank) { return at_.members.peer(rank).left; };
  return options_.exchange.hub && !at_.members.is_hub() && at_.members.is_member() &&
         !at_.rounds.ended() && lost(at_.members.coordinator()) &&
         std::ranges::all_of(others, [&](WorkerId rank) { return lost(rank) || left(rank); }) &&
         std::ranges::any_of(others, [&](WorkerId rank) { return lost(rank) && !left(rank); });
}

void PeerLosses::take_bye(WorkerId from, const FrameHeader& head, TimePoint now, Outbox& out) {
  at_.members.peer(from).left = true;
  if (head.offset > 0) at_.members.peer(from).begun = head.offset - 1;
  for (auto& [id, open] : at_.rounds.all()) fail_if_left(open, out);
  if (at_.members.coordinates() && membership().leaves(from) && !at_.rounds.ended() &&
      !needs(from)) {
    at_.epochs.part_with(from, now, out);
  }
}

// All members begin the same rounds in the same order, so a count tells which rounds a member has
// begun.
void PeerLosses::fail_if_left(OpenRound& open, Outbox& out) {
  if (options_.exchange.elastic || !open.pending()) return;
  for (const WorkerId peer : at_.members.peers()) {
    const Peer& state = at_.members.peer(peer);
    if (!state.left || !state.begun || open.number <= *state.begun) continue;
    const SyncId id = open.round.id();
    at_.commit.fail(
        open,
        {ExchangeError::Kind::kPeerLost, peer,
         fmt::format(
             "worker {} has ended its run after {} rounds and takes no part in that of fragment {} "
             "sent at step {}; all workers of a run take equally many steps",
             peer.value(), *state.begun, id.fragment.value(), id.sent.value())},
        out);
    return;
  }
}

void PeerLosses::take_gone(WorkerId from, const Frame& frame, TimePoint now, Outbox& out) {
  const FrameHeader& head = frame.header;
  const bool known = head.part < static_cast<std::uint32_t>(options_.members) &&
                     head.part != static_cast<std::uint32_t>(at_.members.coordinator().value());
  const WorkerId peer(known ? static_cast<int>(head.part) : 0);
  // A loss that was seen before the member came back is no news.
  if (!options_.exchange.elastic || !at_.members.coordinates() || !known || at_.rounds.ended() ||
      !membership().live(peer) || !at_.members.live(from) ||
      head.epoch < membership().came_in(peer)) {
    return;
  }
  const std::string_view why(reinterpret_cast<const char*>(frame.payload.data()),
                             std::min(frame.payload.size(), kMaxWords));
  if (head.offset == kStalls) {
    at_.reports.note(from, peer, std::string(why), now);
  } else if (head.offset == kGivesUp) {
    at_.reports.note(peer, from, {}, now);
  } else if (head.offset != kStraggles) {
    // A member that gives another one up closes its connections, which may be seen before its
    // message arrives.
    if (at_.reports.open(peer, from)) return;
    at_.epochs.exclude(peer, fmt::format("worker {} has lost it: {}", from.value(), why), now, out);
  } else if (at_.members.can_spare(peer)) {
    at_.epochs.exclude(peer, std::string(why), now, out);
  }
}

/// Without the coordinator's values no round can continue, and no other member can take its place.
void PeerLosses::settle_reports(TimePoint now, Outbox& out) {
  std::set<WorkerId> members;
  for (int m = 0; m < options_.members && !at_.rounds.ended(); ++m) {
    if (at_.members.live(WorkerId(m))) members.insert(WorkerId(m));
  }
  const auto gone = at_.reports.settle(now, at_.members.coordinator(), members);
  for (const auto& [who, why] : gone) {
    if (who == options_.self) {
      at_.rounds.end_all(
          {ExchangeError::Kind::kPeerLost, who,
           fmt::format("worker {} reaches none of several others with values, and nothing "
                       "goes on without it: {}",
                       who.value(), why)});
      return;
    }
    at_.epochs.exclude(who, why, now, out);
  }
}

void PeerLosses::leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out) {
  const OpenRound* open = at_.rounds.find(id);
  if (!options_.exchange.elastic || at_.rounds.ended() || open == nullptr || !open->pending()) {
    return;
  }
  std::vector<WorkerId> behind;
  for (const WorkerId peer : at_.members.peers()) {
    const Round& round = open->round;
    if (at_.members.can_spare(peer) && membership().takes_part(peer, id.sent) &&
        (round.nothing_from(peer) || (groups && round.no_partial_from(peer)))) {
      behind.push_back(peer);
    }
  }
  for (const WorkerId peer : behind) {
    const std::string why =
        fmt::format("worker {} has waited long for it to begin the round of fragment {} of step {}",
                    options_.self.value(), id.fragment.value(), id.sent.value());
    if (!at_.members.coordinates()) {
      at_.sender.send({.kind = FrameKind::kGone,
                       .part = static_cast<std::uint32_t>(peer.value()),
                       .offset = kStraggles},
                      at_.members.coordinator(), std::as_bytes(std::span(why)), out);
    } else if (at_.members.can_spare(peer)) {
      at_.epochs.exclude(peer, why, now, out);
    }
  }
}

}  // namespace isthmus
