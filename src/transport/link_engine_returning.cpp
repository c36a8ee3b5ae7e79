// SPDX-License-Identifier: Apache-2.0
// Processes of one member that follow one another, and members that come later than the others.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "transport/link_engine.h"

namespace isthmus {

// A new process has to wait until the one before it is lost or has been silent for a while: two
// that run at once must not take turns. Where members may not come back, it gets in only until
// frames have passed.
bool LinkEngine::may_replace(const Peer& peer, TimePoint now) const {
  constexpr int kSilence = 3;  // heartbeats
  const bool passed = peer.in.arrived() > 0 || peer.in.bytes_held() > 0 || peer.out.numbered() > 0;
  return (options_.readmits || !passed) &&
         (peer.lost || now - peer.spoke >= kSilence * options_.heartbeat);
}

bool LinkEngine::is_former(const Peer& peer, const Digest128& incarnation) {
  return std::ranges::find(peer.superseded, incarnation) != peer.superseded.end();
}

void LinkEngine::begin_anew(Rank rank) {
  Peer& former = at(rank);
  for (const ConnectionId& id : std::vector<ConnectionId>(former.inbound)) forget(id);
  Peer fresh = new_peer();
  if (!former.joined) {
    fresh.out = std::move(former.out);  // of which nothing has gone
  }
  fresh.use = std::min(former.use, fresh.use);
  fresh.around = former.around;
  fresh.greetings = former.greetings;
  fresh.away = former.away;
  fresh.times_away = former.times_away;
  fresh.superseded = std::move(former.superseded);
  if (former.incarnation) {
    fresh.superseded.push_back(*former.incarnation);
  }
  former = std::move(fresh);
  // A new process counts versions as it finds them.
  if (options_.keys_from == rank) keys_version_ = keys_version_ ? 0 : keys_version_;
  port_.dial_again(rank);
}

// The address of a lost process may be answered by the next one before that has greeted this
// member, with frames of this link yet to be acknowledged: they are not for it.
bool LinkEngine::answers_for(Rank rank, int stream, std::span<const std::byte> body,
                             TimePoint now) {
  Peer& peer = at(rank);
  const auto incarnation = read_incarnation(body);
  if (incarnation && !peer.incarnation && !is_former(peer, *incarnation)) {
    peer.incarnation = *incarnation;
    peer.spoke = now;
  }
  if (incarnation && peer.incarnation == *incarnation) {
    peer.heard = peer.answered = now;
    return true;
  }
  stream_trouble(rank, stream, LinkEvent::Kind::kRefused,
                 incarnation ? "another process answers there than the one that was met before"
                             : incarnation.error().what);
  if (closing_ && incarnation && peer.joined && !is_former(peer, *incarnation)) {
    // The one before takes no goodbye any more, and the next one waits for this process to end.
    lose(rank, LinkEvent::Kind::kLost, "another process answers in its place");
  }
  return false;
}

void LinkEngine::settle_joined(Rank rank) {
  const Peer& peer = at(rank);
  const bool accepted = std::ranges::all_of(
      peer.streams, [](const Stream& stream) { return stream.state == StreamState::kReady; });
  const bool greeted = std::ranges::none_of(  // on those that everyone dials from the beginning
      std::span(peer.inbound).first(static_cast<std::size_t>(options_.streams)),
      [](const ConnectionId& id) { return id.empty(); });
  if (!peer.joined && accepted && (greeted || !options_.readmits)) {
    stand(rank);
  }
}

void LinkEngine::stand(Rank rank) {
  Peer& peer = at(rank);
  peer.joined = true;
  if (options_.readmits) {
    std::erase_if(join_errors_, [&](const JoinError& error) { return error.peer == rank; });
  }
  if (std::exchange(peer.away, false)) {
    port_.event(
        {LinkEvent::Kind::kWelcomed, rank, -1, fmt::format("{}: is here now", describe(rank))});
    port_.back(rank);
  }
  for (FrameBytes& frame : std::exchange(peer.early, {})) {
    hand_out(rank, std::move(frame));
  }
  pump(rank);
}

std::vector<Rank> LinkEngine::begin_without_absent() {
  std::vector<Rank> absent;
  for (int member = 0; member < options_.members; ++member) {
    Peer& peer = at(Rank(member));
    if (Rank(member) == options_.self || peer.joined) {
      continue;
    }
    absent.push_back(Rank(member));
    if (!std::exchange(peer.away, true)) {
      ++peer.times_away;
      peer.out.clear();
    }
  }
  return absent;
}

}  // namespace isthmus
