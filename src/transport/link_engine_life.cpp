// SPDX-License-Identifier: Apache-2.0
// Who is alive, and who is lost.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "transport/link_engine.h"

namespace isthmus {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Of dead_after, without which TCP ends a connection on which nothing gets through: what it carried
// goes on over those that do move, or are back, and has the rest of the time to show it.
constexpr double kStall = 1.5;
// By way of a relay bytes move in lumps of up to 64 KiB, as its buffers have room: 8 kbit/s are
// lumps of a minute.
constexpr double kLumps = 8;
// A connection that was reset is back after a moment and about five round trips: of TCP, of the
// handshake with its keys, of the greeting.
constexpr int kRoundTripsBack = 7;

}  // namespace

TimePoint LinkEngine::gone_at(Rank rank) const {
  const Peer& peer = at(rank);
  if (!peer.joined || peer.lost || !peer.down_since) return kNever;
  const Duration far = std::min(kRoundTripsBack * peer.round_trip, options_.dead_after);
  // What the round trip by way of a relay is, TCP here does not know.
  const Duration least = passed_on(rank) ? 2 * options_.gone_after : options_.gone_after;
  return *peer.down_since + std::max(least, far);
}

void LinkEngine::check_life(Rank rank, TimePoint now) {
  Peer& peer = at(rank);
  if (!peer.joined || peer.lost) {
    return;  // whoever waits for it to join has a deadline
  }
  if (now >= gone_at(rank)) {
    const auto broken = std::ranges::find_if(
        peer.streams, [](const Stream& stream) { return !stream.trouble.empty(); });
    lose(rank, LinkEvent::Kind::kLost,
         fmt::format("its connections broke and have not come back for {:.1f} s{}{}",
                     seconds(now - *peer.down_since), broken == peer.streams.end() ? "" : ": ",
                     broken == peer.streams.end() ? "" : broken->trouble));
  } else if (now - peer.heard >= options_.dead_after) {
    lose(rank, LinkEvent::Kind::kLost,
         fmt::format("it has been silent for {:.1f} s", seconds(now - peer.heard)));
  } else if (peer.stalled_since && now - *peer.stalled_since >=
                                       (passed_on(rank) ? kLumps : kStall) * options_.dead_after) {
    lose(rank, LinkEvent::Kind::kLost,
         fmt::format("it is heard, but nothing of {} bytes on their way to it has got through for "
                     "{:.1f} s: something drops packets of full size (check the MTU of this way, "
                     "or set net.ipv4.tcp_mtu_probing = 1 on both machines)",
                     peer.out.bytes_in_flight(), seconds(now - *peer.stalled_since)),
         LossCause::kStalled);
  } else if (peer.untaken_since && now - *peer.untaken_since >= options_.stuck_after) {
    lose(rank, LinkEvent::Kind::kLost,
         fmt::format("it is heard and has {} bytes of frames, but has taken none for {:.1f} s: its "
                     "process hangs",
                     peer.out.bytes_in_flight(), seconds(now - *peer.untaken_since)));
  }
}

void LinkEngine::moved(Rank rank, Movement movement, TimePoint now) {
  Peer& peer = at(rank);
  const bool under_way = peer.joined && !peer.lost && peer.out.bytes_in_flight() > 0;
  const bool repeats = peer.out.repeats();  // so not all is there, whatever TCP says
  const Duration passed = now - std::exchange(peer.looked, now);
  if (!under_way || movement == Movement::kMoves) {
    peer.stalled_since.reset();
    peer.untaken_since.reset();
  } else if (repeats && held_back_ && movement == Movement::kDelivered) {
    // What has to go again waits for its turn, so the time until then counts for nothing; the time
    // before does: under a cap something waits at most looks, and a way that passes no values would
    // never be found by it.
    if (peer.stalled_since) peer.stalled_since = std::min(*peer.stalled_since + passed, now);
    peer.untaken_since.reset();
  } else if (movement == Movement::kStalled || repeats) {
    if (!peer.stalled_since) peer.stalled_since = now;
    peer.untaken_since.reset();
  } else {
    peer.stalled_since.reset();
    // Before the first one its owner may wait for others to come, and look at none. By way of a
    // relay TCP tells what the task has that passes them on: at 64 kbit/s the acknowledgement of
    // what it holds takes longer than any process may hang.
    if (!peer.untaken_since && peer.out.acknowledged() > 0 && !passed_on(rank)) {
      peer.untaken_since = now;
    }
  }
}

void LinkEngine::lose(Rank rank, LinkEvent::Kind kind, const std::string& why, LossCause cause) {
  Peer& peer = at(rank);
  if (peer.lost) {
    return;
  }
  const std::string text = fmt::format("{}: {}", describe(rank), why);
  if (kind == LinkEvent::Kind::kLost) {
    give_up_on(rank, "has counted this one as lost");
  }
  if (!peer.joined) {
    cannot_join(rank, RefusedField::kGivenUp, text);
  }
  peer.lost = true;
  port_.event({kind, rank, -1, text});
  port_.hang_up(rank);
  if (!peer.away && (peer.joined || !options_.readmits)) {
    peer.away = true;
    ++peer.times_away;
    peer.out.clear();
    port_.lost(rank, cause, text);
  }
}

void LinkEngine::give_up_on(Rank rank, const char* why) {
  std::uint32_t stream = 0;
  for (const ConnectionId& id : at(rank).inbound) {
    if (!id.empty()) {
      refuse(id, {RefusedField::kGivenUp, fmt::format("member {} {}", options_.self.value(), why)},
             stream);
    }
    ++stream;
  }
}

}  // namespace isthmus
