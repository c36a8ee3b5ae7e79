// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_sending.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "transport/links/link_flow.h"

namespace isthmus {

LinkSending::LinkSending(LinkPeers& all)
    : all_(all), budget_(all.options.send_bits_per_s ? all.options.send_bits_per_s() : 0) {}

void LinkSending::submit(WorkerId to, FrameBytes frame, std::uint64_t returns) {
  LinkPeer& peer = all_.at(to);
  if (all_.closing || peer.lost || peer.away || returns != peer.times_away) {
    return;
  }
  peer.out.submit(std::move(frame));
  pump(to);
}

void LinkSending::use_streams(WorkerId to, int streams) {
  LinkPeer& peer = all_.at(to);
  const auto wanted = static_cast<std::size_t>(streams);
  ISTHMUS_CHECK(streams >= 1 && wanted <= peer.accepted.ids.size(), streams,
                peer.accepted.ids.size());
  if (wanted > peer.dialled.streams.size()) {
    if (!peer.joined || peer.lost) {
      return;  // a peer joins on the first streams
    }
    peer.dialled.streams.resize(wanted);
    all_.port.dial_more(to, streams);
  }
  peer.dialled.use = wanted;
  peer.dialled.use_told = true;
}

// A peer on this machine gets its frames over one connection, so that those that wait make long
// rows (zmq_batch.h), unless the file says how many or lost packets have shown that more are
// better. In a network each connection may have a rate of its own, so others get all.
std::size_t LinkSending::streams_to_use(const LinkPeer& peer, bool within_machine) const {
  const bool one = within_machine && all_.options.most_streams > 0 && !peer.dialled.use_told;
  const std::size_t use = one ? 1 : peer.dialled.use;
  const bool stands =
      std::ranges::any_of(std::span(peer.dialled.streams).first(use), &LinkStream::ready);
  return stands ? use : peer.dialled.streams.size();  // better one of the rest
}

// Frames go to whichever connection takes one, in turn: a slow connection gets fewer.
void LinkSending::pump(WorkerId rank) {
  LinkPeer& peer = all_.at(rank);
  if (all_.options.readmits && !peer.joined) {
    return;  // the member may yet begin without this peer, which then gets none of these frames
  }
  std::vector<LinkStream>& streams = peer.dialled.streams;
  const bool near = all_.port.is_near(rank);
  const std::size_t use = streams_to_use(peer, all_.port.is_within_machine(rank));
  peer.out.keep_to(near ? kNearWindow : ~std::uint64_t{0});
  std::size_t refusals = 0;
  while (!peer.lost && refusals < streams.size()) {
    const FrameBytes* frame = peer.out.next();
    if (frame == nullptr) {
      if (all_.closing && !peer.farewell.said_close) say_close(rank);
      return;
    }
    if (!budget_.open(all_.now)) {
      held_back_ = true;
      return;
    }
    peer.dialled.last = (peer.dialled.last + 1) % streams.size();
    LinkStream& stream = streams[peer.dialled.last];
    if (!stream.ready() || stream.blocked || peer.dialled.last >= use) {
      ++refusals;
      continue;
    }
    const auto number = static_cast<int>(peer.dialled.last);
    const LinkHeader header{.kind = LinkKind::kData,
                            .stream = static_cast<std::uint32_t>(peer.dialled.last),
                            .number = peer.out.next_number(),
                            .amount = stream.sent};
    if (!all_.port.to_stream(rank, number, header, *frame)) {
      stream.blocked = true;
      ++refusals;
      continue;
    }
    ++stream.sent;
    if (all_.options.on_carried) all_.options.on_carried(true, rank, number, **frame);
    sent_last_ = rank;
    budget_.spend(all_.now, (*frame)->size() + sizeof(LinkHeaderBytes));
    peer.out.sent(number);
    refusals = 0;
  }
  peer.dialled.waited = true;
}

// The receiver after that of the last frame comes first, or the first peer would take the whole
// budget.
void LinkSending::send_held_back(TimePoint now) {
  if (!held_back_ || !budget_.open(now)) {
    return;
  }
  held_back_ = false;
  std::vector<WorkerId> peers = all_.living();
  const auto next = std::upper_bound(peers.begin(), peers.end(), sent_last_);
  std::rotate(peers.begin(), next, peers.end());  // clang 14 does not take std::ranges::rotate
  for (const WorkerId peer : peers) {
    pump(peer);
  }
}

void LinkSending::say_close(WorkerId rank) {
  LinkPeer& peer = all_.at(rank);
  if (peer.farewell.told || !peer.out.all_sent()) {
    return;
  }
  for (int k = 0; k < all_.streams_dialled(rank); ++k) {
    const LinkHeader header{.kind = LinkKind::kClose,
                            .stream = static_cast<std::uint32_t>(k),
                            .number = peer.out.numbered()};
    if (peer.dialled.streams[static_cast<std::size_t>(k)].ready() &&
        all_.port.to_stream(rank, k, header, nullptr)) {
      peer.farewell.said_close = true;
      return;
    }
  }
}

void LinkSending::renew_budget(TimePoint now) {
  if (all_.options.send_bits_per_s) budget_.set_rate(now, all_.options.send_bits_per_s());
}

}  // namespace isthmus
