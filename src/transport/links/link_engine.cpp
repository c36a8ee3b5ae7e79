// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace isthmus {

void LinkEngine::taken(WorkerId from, std::size_t frame_bytes, std::uint64_t returns) {
  // While the engine closes, all frames count as taken already.
  if (!all_.closing && returns == all_.at(from).times_away) {
    receiving_.count_taken(from, frame_bytes);
  }
}

void LinkEngine::rerouted(WorkerId rank, bool around, TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  peer.dialled.around = around;
  const std::optional<TimePoint> down_since = peer.life.down_since;
  greeting_.drop_all(rank, now);
  peer.life.down_since = down_since;
  liveness_.rerouted(rank, now);
}

void LinkEngine::from_stream(WorkerId rank, std::span<const std::byte> header,
                             std::span<const std::byte> body, TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  const auto parsed = parse_link_message(header, body);
  if (peer.lost || !parsed || parsed->stream >= peer.dialled.streams.size()) {
    return;
  }
  const auto number = static_cast<int>(parsed->stream);
  const LinkStream& stream = peer.dialled.streams[parsed->stream];
  // Where a new process may answer, only a welcome says which process does.
  const bool known = !all_.options.readmits || stream.ready();
  if (known) {
    peer.life.heard = peer.life.answered = now;
  }
  switch (parsed->kind) {
    case LinkKind::kWelcome:
      greeting_.welcomed(rank, *parsed, body, now);
      return;
    case LinkKind::kRefuse:
      greeting_.refused(rank, number, body);
      return;
    case LinkKind::kAck:
      if (known) take_acknowledgement(rank, parsed->number);
      return;
    case LinkKind::kClosed:
      peer.farewell.told = peer.farewell.told || known;
      return;
    case LinkKind::kWho:
      if (stream.ready()) {
        greeting_.drop(rank, number, now);
        greeting_.greet(rank, number, now);
      }
      return;
    case LinkKind::kKeys:
      if (known) keys_.take(rank, body);
      return;
    case LinkKind::kHello:
    case LinkKind::kData:
    case LinkKind::kHeartbeat:
    case LinkKind::kClose:
    case LinkKind::kEnrol:
      return;  // only a dialler says these
  }
}

void LinkEngine::take_acknowledgement(WorkerId rank, std::uint64_t frames) {
  LinkPeer& peer = all_.at(rank);
  if (frames > peer.out.acknowledged()) {
    liveness_.acknowledged(rank);
  }
  if (!peer.out.acknowledge(frames)) {
    presence_.lose(rank, LinkEvent::Kind::kLost,
                   fmt::format("it acknowledges {} frames of {}", frames, peer.out.numbered()));
  }
  sending_.pump(rank);
}

void LinkEngine::from_connection(const ConnectionId& id, std::span<const std::byte> header,
                                 std::span<const std::byte> body, TimePoint now,
                                 std::optional<WorkerId> owner, FrameBytes kept) {
  const auto parsed = parse_link_message(header, body);
  if (!parsed) {
    strangers_.sent(parsed.error().what);
    if (parsed.error().other_version) {
      connections_.refuse(id, {RefusedField::kProtocol, parsed.error().what});
    }
    return;
  }
  if (parsed->kind == LinkKind::kHello) {
    admission_.take_hello(id, *parsed, body, now, owner);
    return;
  }
  const LinkConnections::Connection* connection = connections_.find(id);
  if (connection == nullptr) {
    all_.port.to_connection(id, {.kind = LinkKind::kWho, .stream = parsed->stream}, nullptr);
    return;
  }
  // A dialler chooses the id of ZeroMQ, which may have been another connection's.
  if (admission_.speaks_for(connection->peer, owner, id)) {
    from_peer(id, *parsed, body, now, std::move(kept));
  }
}

void LinkEngine::from_peer(const ConnectionId& id, const LinkHeader& header,
                           std::span<const std::byte> body, TimePoint now, FrameBytes kept) {
  LinkConnections::Connection& connection = *connections_.find(id);
  const WorkerId from = connection.peer;
  LinkPeer& peer = all_.at(from);
  if (peer.lost) {
    answer_lost(id, from, header.stream);
    return;
  }
  peer.life.heard = now;
  peer.life.spoke = now;
  peer.accepted.last = connection.stream;
  const bool data = header.kind == LinkKind::kData;
  const std::uint64_t sent = data ? header.amount : header.number;
  if ((data || header.kind == LinkKind::kHeartbeat) && sent != connection.received) {
    // A message sent before is missing, or comes twice: the dialler greets again and repeats it.
    const std::uint32_t stream = connection.stream;
    strangers_.count(LinkEvent::Kind::kStranger,
                     fmt::format("{}, connection {}: something is missing or has come twice on it "
                                 "(a frame of another time?), and it begins anew",
                                 all_.describe(from), stream));
    connections_.forget(id);
    all_.port.to_connection(id, {.kind = LinkKind::kWho, .stream = stream}, nullptr);
    return;
  }
  if (data) {
    ++connection.received;
    if (all_.options.on_carried) {
      all_.options.on_carried(false, from, static_cast<int>(connection.stream), body);
    }
    if (!kept) kept = std::make_shared<const std::vector<std::byte>>(body.begin(), body.end());
    if (!receiving_.take_frame(from, header.number, std::move(kept))) {
      presence_.lose(from, LinkEvent::Kind::kLost,
                     fmt::format("it sends more than the {} bytes this member takes",
                                 all_.options.window_bytes));
    }
  } else if (header.kind == LinkKind::kClose) {
    peer.farewell.leaving = header.number;
  }
  presence_.settle_leave(from);
}

void LinkEngine::answer_lost(const ConnectionId& id, WorkerId from, std::uint32_t stream) {
  if (all_.at(from).farewell.leaving) {  // the word that all frames have come may have been lost
    all_.port.to_connection(id, {.kind = LinkKind::kClosed, .stream = stream}, nullptr);
  } else {
    connections_.refuse(
        id, {RefusedField::kGivenUp,
             fmt::format("member {} has counted this one as lost", all_.options.self.value())});
  }
}

void LinkEngine::tick(TimePoint now) {
  all_.now = now;
  sending_.send_held_back(now);
  if (now < next_beat_) {
    // Between two heartbeats this process has not been asleep.
    for (const WorkerId rank : all_.living()) {
      if (now >= liveness_.gone_at(rank)) liveness_.check(rank, now);
    }
  } else {
    beat(now);
  }
}

void LinkEngine::beat(TimePoint now) {
  const bool was_away = now - all_.last_beat >= all_.options.dead_after / 2;  // stopped, or asleep
  all_.last_beat = now;
  next_beat_ = now + all_.options.heartbeat;
  sending_.renew_budget(now);
  for (const WorkerId rank : all_.living()) {
    LinkPeer& peer = all_.at(rank);
    if (was_away) liveness_.slept(rank, now);
    peer.in.acknowledged();
    connections_.say(rank, LinkKind::kAck, peer.in.taken_frames());
    keys_.say(rank);
    greeting_.beat(rank, now);
    if (all_.closing) {
      sending_.say_close(rank);
    }
    greeting_.settle_misfit(rank, now);
    liveness_.check(rank, now);
  }
}

TimePoint LinkEngine::next_tick() const {
  TimePoint next = std::min(next_beat_, sending_.goes_on());
  for (const WorkerId rank : all_.living()) next = std::min(next, liveness_.gone_at(rank));
  return next;
}

void LinkEngine::close(TimePoint now) {
  all_.closing = true;
  next_beat_ = now;
  for (const WorkerId rank : all_.living()) {
    LinkPeer& peer = all_.at(rank);
    peer.in.drop_held();
    peer.early.clear();  // these frames count as taken with the rest
    sending_.say_close(rank);
    if (!peer.joined) {  // there may be no connection for the farewell
      connections_.give_up_on(rank, "has left before it had reached this one");
    }
  }
}

std::string LinkEngine::describe_missing(std::span<const WorkerId> these,
                                         std::span<const std::string> endpoints) const {
  std::string text = presence_.describe_missing(these, endpoints);
  if (!strangers_.hint().empty()) text += "; " + strangers_.hint();
  return text;
}

}  // namespace isthmus
