// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace isthmus {
namespace {

// In units of dead_after. After one dead_after TCP ends a connection that passes no bytes; the
// connection's frames have the rest of the time to arrive over other connections.
constexpr double kStall = 1.5;
// By way of a relay bytes move in lumps of up to 64 KiB, as the relay's buffers have room: at 8
// kbit/s a lump takes a minute.
constexpr double kLumps = 8;
// A connection that was reset is back after a moment and about five round trips: of TCP, of the
// handshake with its keys, of the greeting.
constexpr int kRoundTripsBack = 7;

}  // namespace

TimePoint LinkLiveness::gone_at(WorkerId rank) const {
  const LinkPeer& peer = all_.at(rank);
  if (!peer.joined || peer.lost || !peer.life.down_since) return kNever;
  const MemberOptions& options = all_.options;
  const Duration far = std::min(kRoundTripsBack * peer.life.round_trip, options.dead_after);
  // TCP here does not measure the round trip by way of a relay.
  const Duration least = all_.passed_on(rank) ? 2 * options.gone_after : options.gone_after;
  return *peer.life.down_since + std::max(least, far);
}

void LinkLiveness::check(WorkerId rank, TimePoint now) {
  const LinkPeer& peer = all_.at(rank);
  const LinkPeer::Life& life = peer.life;
  if (!peer.joined || peer.lost) {
    return;  // the wait for the peer to join has a separate deadline
  }
  if (now >= gone_at(rank)) {
    const auto& streams = peer.dialled.streams;
    const auto broken = std::ranges::find_if(
        streams, [](const LinkStream& stream) { return !stream.trouble.empty(); });
    presence_.lose(
        rank, LinkEvent::Kind::kLost,
        fmt::format("its connections broke and have not come back for {:.1f} s{}{}",
                    in_seconds(now - *life.down_since), broken == streams.end() ? "" : ": ",
                    broken == streams.end() ? "" : broken->trouble));
  } else if (now - life.heard >= all_.options.dead_after) {
    presence_.lose(rank, LinkEvent::Kind::kLost,
                   fmt::format("it has been silent for {:.1f} s", in_seconds(now - life.heard)));
  } else if (life.stalled_since &&
             now - *life.stalled_since >=
                 (all_.passed_on(rank) ? kLumps : kStall) * all_.options.dead_after) {
    presence_.lose(
        rank, LinkEvent::Kind::kLost,
        fmt::format("it is heard, but nothing of {} bytes on their way to it has got through for "
                    "{:.1f} s: something drops packets of full size (check the MTU of this way, "
                    "or set net.ipv4.tcp_mtu_probing = 1 on both machines)",
                    peer.out.bytes_in_flight(), in_seconds(now - *life.stalled_since)),
        LossCause::kStalled);
  } else if (life.untaken_since && now - *life.untaken_since >= all_.options.stuck_after) {
    presence_.lose(
        rank, LinkEvent::Kind::kLost,
        fmt::format("it is heard and has {} bytes of frames, but has taken none for {:.1f} s: its "
                    "process hangs",
                    peer.out.bytes_in_flight(), in_seconds(now - *life.untaken_since)));
  }
}

void LinkLiveness::moved(WorkerId rank, Movement movement, bool held_back, TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  LinkPeer::Life& life = peer.life;
  const bool under_way = peer.joined && !peer.lost && peer.out.bytes_in_flight() > 0;
  const bool repeats = peer.out.repeats();  // so not all is there, whatever TCP says
  const Duration passed = now - std::exchange(life.looked, now);
  if (!under_way || movement == Movement::kMoves) {
    life.stalled_since.reset();
    life.untaken_since.reset();
  } else if (repeats && held_back && movement == Movement::kDelivered) {
    // Frames that have to go again wait for the budget, so the time until then does not count. The
    // time before does count: under a cap something waits at most looks, and a way that passes no
    // values would otherwise never be found.
    if (life.stalled_since) life.stalled_since = std::min(*life.stalled_since + passed, now);
    life.untaken_since.reset();
  } else if (movement == Movement::kStalled || repeats) {
    if (!life.stalled_since) life.stalled_since = now;
    life.untaken_since.reset();
  } else {
    life.stalled_since.reset();
    // Before the first acknowledgement the peer's owner may wait for other members, and look at no
    // frame. By way of a relay TCP reports what the relay has: at 64 kbit/s the acknowledgement of
    // the frames that a relay holds takes longer than any process may hang.
    if (!life.untaken_since && peer.out.acknowledged() > 0 && !all_.passed_on(rank)) {
      life.untaken_since = now;
    }
  }
}

void LinkLiveness::slept(WorkerId rank, TimePoint now) {
  LinkPeer::Life& life = all_.at(rank).life;
  life.heard = life.answered = now;
  if (life.down_since) life.down_since = now;
  acknowledged(rank);
}

void LinkLiveness::acknowledged(WorkerId rank) {
  LinkPeer::Life& life = all_.at(rank).life;
  life.stalled_since.reset();
  life.untaken_since.reset();
}

void LinkLiveness::rerouted(WorkerId rank, TimePoint now) {
  all_.at(rank).life.answered = now;
  acknowledged(rank);
}

LinkSigns LinkLiveness::signs(WorkerId rank) const {
  const LinkPeer& peer = all_.at(rank);
  // On a detour bytes move in lumps, as the tasks on the way have room: a stall there is no reason
  // to take another way.
  return {.joined = peer.joined,
          .answered = peer.life.answered,
          .stalled_since = all_.passed_on(rank) ? std::nullopt : peer.life.stalled_since,
          .down_since = peer.life.down_since};
}

}  // namespace isthmus
