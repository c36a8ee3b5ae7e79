// SPDX-License-Identifier: Apache-2.0
// Frames that go: when, and over which connection.
#include <algorithm>
#include <span>
#include <utility>

#include "core/check.h"
#include "transport/link_engine.h"

namespace isthmus {

void LinkEngine::submit(Rank to, FrameBytes frame, std::uint64_t returns) {
  if (closing_ || at(to).lost || at(to).away || returns != at(to).times_away) {
    return;
  }
  at(to).out.submit(std::move(frame));
  pump(to);
}

void LinkEngine::use_streams(Rank to, int streams) {
  Peer& peer = at(to);
  const auto wanted = static_cast<std::size_t>(streams);
  ISTHMUS_CHECK(streams >= 1 && wanted <= peer.inbound.size(), streams, peer.inbound.size());
  if (wanted > peer.streams.size()) {
    if (!peer.joined || peer.lost) {
      return;  // it is met on the first ones
    }
    peer.streams.resize(wanted);
    port_.dial_more(to, streams);
  }
  peer.use = wanted;
}

// Frames go to whichever connection takes one, in turn: a slow one gets fewer.
void LinkEngine::pump(Rank rank) {
  Peer& peer = at(rank);
  if (options_.readmits && !peer.joined) {
    return;  // the member may yet begin without this peer, which then gets nothing of this
  }
  const auto first = std::span(peer.streams).first(peer.use);
  const bool stands = std::ranges::any_of(
      first, [](const Stream& stream) { return stream.state == StreamState::kReady; });
  const std::size_t use = stands ? peer.use : peer.streams.size();  // better one of the rest
  std::size_t refusals = 0;
  while (!peer.lost && refusals < peer.streams.size()) {
    const FrameBytes* frame = peer.out.next();
    if (frame == nullptr) {
      if (closing_ && !peer.said_close) say_close(rank);
      return;
    }
    if (!budget_.open(now_)) {
      held_back_ = true;
      return;
    }
    peer.last_stream = (peer.last_stream + 1) % peer.streams.size();
    Stream& stream = peer.streams[peer.last_stream];
    if (stream.state != StreamState::kReady || stream.blocked || peer.last_stream >= use) {
      ++refusals;
      continue;
    }
    const auto number = static_cast<int>(peer.last_stream);
    const LinkHeader header{.kind = LinkKind::kData,
                            .stream = static_cast<std::uint32_t>(peer.last_stream),
                            .number = peer.out.next_number(),
                            .amount = stream.sent};
    if (!port_.to_stream(rank, number, header, *frame)) {
      stream.blocked = true;
      ++refusals;
      continue;
    }
    ++stream.sent;
    if (options_.on_carried) options_.on_carried(true, rank, number, **frame);
    sent_last_ = rank;
    budget_.spend(now_, (*frame)->size() + sizeof(LinkHeaderBytes));
    peer.out.sent(number);
    refusals = 0;
  }
  peer.waited = true;
}

bool LinkEngine::wants_write(Rank peer, int stream) const {
  return !at(peer).lost && at(peer).streams[static_cast<std::size_t>(stream)].blocked;
}

void LinkEngine::writable(Rank rank, int stream) {
  Stream& state = at(rank).streams[static_cast<std::size_t>(stream)];
  state.blocked = false;
  if (state.state == StreamState::kDown && !at(rank).lost) {
    greet(rank, stream, last_tick_);  // it was not taken before; the time to a heartbeat will do
  }
  pump(rank);
}

// From the one after whoever sent last, or the first would have all there is.
void LinkEngine::send_held_back(TimePoint now) {
  now_ = now;
  if (!held_back_ || !budget_.open(now)) {
    return;
  }
  held_back_ = false;
  std::vector<Rank> peers = living();
  const auto next = std::upper_bound(peers.begin(), peers.end(), sent_last_);
  std::rotate(peers.begin(), next, peers.end());  // clang 14 does not take std::ranges::rotate
  for (const Rank peer : peers) {
    pump(peer);
  }
}

TimePoint LinkEngine::next_tick() const {
  TimePoint next = held_back_ ? std::min(next_tick_, budget_.opens()) : next_tick_;
  for (const Rank rank : living()) next = std::min(next, gone_at(rank));
  return next;
}

}  // namespace isthmus
