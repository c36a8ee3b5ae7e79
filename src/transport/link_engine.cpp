// SPDX-License-Identifier: Apache-2.0
// Frames that come, acknowledgements, who leaves. Frames that go are link_engine_sending.cpp,
// greetings link_engine_greeting.cpp, who is alive link_engine_life.cpp.
#include "transport/link_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/frame.h"

namespace isthmus {

LinkEngine::LinkEngine(MemberOptions options, const Digest128& incarnation, LinkPort& port,
                       TimePoint now)
    : options_(std::move(options)),
      hello_{.protocol = kFrameVersion,
             .members = options_.members,
             .from = options_.self,
             .to = options_.self,
             .streams = options_.streams,
             .most_streams = options_.most_streams,
             .run = options_.identity.run,
             .configuration = options_.identity.configuration,
             .layout = options_.identity.layout,
             .incarnation = incarnation,
             .name = options_.name},
      port_(port),
      budget_(options_.send_bits_per_s ? options_.send_bits_per_s() : 0),
      last_tick_(now),
      next_tick_(now) {
  options_.keys.reset();  // whose public half is in member_keys
  if (hello_.configuration.empty()) {
    hello_.configuration = std::string(64, '0');
  }
  file_keys_ = options_.member_keys;
  if (keys_may_come()) {
    for (int member = 0; member < options_.members; ++member) {
      if (Rank(member) != options_.self && Rank(member) != *options_.keys_from) {
        options_.member_keys[static_cast<std::size_t>(member)].clear();
      }
    }
  }
  for (int member = 0; member < options_.members; ++member) {
    peers_.push_back(new_peer());
  }
}

LinkEngine::Peer LinkEngine::new_peer() const {
  Peer peer(options_.window_bytes);
  peer.streams.resize(static_cast<std::size_t>(options_.streams));
  peer.use = peer.streams.size();
  peer.inbound.resize(static_cast<std::size_t>(most_streams(options_)));
  peer.next_greeting.resize(peer.inbound.size());
  peer.answered = last_tick_;
  return peer;
}

std::vector<Rank> LinkEngine::living() const {
  std::vector<Rank> result;
  for (int member = 0; member < options_.members; ++member) {
    if (Rank(member) != options_.self && !at(Rank(member)).lost) {
      result.push_back(Rank(member));
    }
  }
  return result;
}

void LinkEngine::taken(Rank from, std::size_t frame_bytes, std::uint64_t returns) {
  if (!closing_ && returns == at(from).times_away) {  // while closing all are counted as taken
    count_taken(from, frame_bytes);
  }
}

void LinkEngine::count_taken(Rank from, std::size_t frame_bytes) {
  Peer& peer = at(from);
  peer.in.taken(frame_bytes);
  if (peer.in.owes_acknowledgement() && !peer.lost) {
    acknowledge(from);
  }
}

void LinkEngine::from_stream(Rank rank, std::span<const std::byte> header,
                             std::span<const std::byte> body, TimePoint now) {
  Peer& peer = at(rank);
  const auto parsed = parse_link_message(header, body);
  if (peer.lost || !parsed || parsed->stream >= peer.streams.size()) {
    return;
  }
  // Where a new process may answer, only a welcome says who does.
  const bool known =
      !options_.readmits || peer.streams[parsed->stream].state == StreamState::kReady;
  if (known) {
    peer.heard = peer.answered = now;
  }
  switch (parsed->kind) {
    case LinkKind::kWelcome:
      welcomed(rank, *parsed, body, now);
      return;
    case LinkKind::kRefuse:
      refused(rank, static_cast<int>(parsed->stream), body);
      return;
    case LinkKind::kAck:
      if (!known) {
        return;
      }
      if (parsed->number > peer.out.acknowledged()) {
        peer.stalled_since.reset();
        peer.untaken_since.reset();
      }
      if (!peer.out.acknowledge(parsed->number)) {
        lose(rank, LinkEvent::Kind::kLost,
             fmt::format("it acknowledges {} frames of {}", parsed->number, peer.out.numbered()));
      }
      pump(rank);
      return;
    case LinkKind::kClosed:
      peer.told = peer.told || known;
      return;
    case LinkKind::kWho:
      if (peer.streams[parsed->stream].state == StreamState::kReady) {
        drop_stream(rank, static_cast<int>(parsed->stream), now);
        greet(rank, static_cast<int>(parsed->stream), now);
      }
      return;
    case LinkKind::kKeys:
      if (known) take_keys(rank, body);
      return;
    case LinkKind::kHello:
    case LinkKind::kData:
    case LinkKind::kHeartbeat:
    case LinkKind::kClose:
    case LinkKind::kEnrol:
      return;  // only who dials says these
  }
}

void LinkEngine::from_connection(const ConnectionId& id, std::span<const std::byte> header,
                                 std::span<const std::byte> body, TimePoint now,
                                 std::optional<Rank> owner, FrameBytes kept) {
  const auto parsed = parse_link_message(header, body);
  if (!parsed) {
    stranger(parsed.error().what);
    if (parsed.error().other_version) {
      refuse(id, {RefusedField::kProtocol, parsed.error().what});
    }
    return;
  }
  if (parsed->kind == LinkKind::kHello) {
    take_hello(id, *parsed, body, now, owner);
    return;
  }
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    port_.to_connection(id, {.kind = LinkKind::kWho, .stream = parsed->stream}, nullptr);
    return;
  }
  Connection& connection = found->second;
  if (!speaks_for(connection.peer, owner, id)) {
    return;  // an id of ZeroMQ is chosen by who connects, and may have been another's
  }
  const Rank from = connection.peer;
  Peer& peer = at(from);
  if (peer.lost) {
    if (peer.leaving) {  // our word that all has come may have been lost
      port_.to_connection(id, {.kind = LinkKind::kClosed, .stream = parsed->stream}, nullptr);
    } else {
      refuse(id, {RefusedField::kGivenUp,
                  fmt::format("member {} has counted this one as lost", options_.self.value())});
    }
    return;
  }
  peer.heard = now;
  peer.spoke = now;
  peer.last_inbound = connection.stream;
  const bool data = parsed->kind == LinkKind::kData;
  const std::uint64_t sent = data ? parsed->amount : parsed->number;
  if ((data || parsed->kind == LinkKind::kHeartbeat) && sent != connection.received) {
    // Something sent before is missing, or comes twice: let it begin anew and send that again.
    const std::uint32_t stream = connection.stream;
    count_stranger(LinkEvent::Kind::kStranger,
                   fmt::format("{}, connection {}: something is missing or has come twice on it (a "
                               "frame of another time?), and it begins anew",
                               describe(from), stream));
    forget(id);
    port_.to_connection(id, {.kind = LinkKind::kWho, .stream = stream}, nullptr);
    return;
  }
  if (data) {
    ++connection.received;
    if (options_.on_carried) {
      options_.on_carried(false, from, static_cast<int>(connection.stream), body);
    }
    if (!kept) kept = std::make_shared<const std::vector<std::byte>>(body.begin(), body.end());
    take_frame(from, parsed->number, std::move(kept));
  } else if (parsed->kind == LinkKind::kClose) {
    peer.leaving = parsed->number;
  }
  settle_leave(from);
}

void LinkEngine::take_frame(Rank from, std::uint64_t number, FrameBytes frame) {
  Peer& peer = at(from);
  std::vector<FrameBytes> in_order;
  const auto verdict = peer.in.receive(number, std::move(frame), in_order);
  if (verdict == LinkReceiver::Verdict::kBeyondWindow) {
    lose(from, LinkEvent::Kind::kLost,
         fmt::format("it sends more than the {} bytes this member takes", options_.window_bytes));
    return;
  }
  for (FrameBytes& each : in_order) {
    if (options_.readmits && !peer.joined) {
      peer.early.push_back(std::move(each));  // the news that it is here goes first
    } else {
      hand_out(from, std::move(each));
    }
  }
}

void LinkEngine::hand_out(Rank from, FrameBytes frame) {
  const std::size_t bytes = frame->size();
  if (closing_) {
    count_taken(from, bytes);
  } else {
    port_.deliver(from, std::move(frame));
  }
}

// Where the peer was heard last: a connection that broke swallows what is said on it.
void LinkEngine::acknowledge(Rank rank) {
  Peer& peer = at(rank);
  const ConnectionId& id = peer.inbound[peer.last_inbound];
  if (id.empty()) {
    return;  // with the next heartbeat
  }
  peer.in.acknowledged();
  port_.to_connection(
      id, {.kind = LinkKind::kAck, .stream = peer.last_inbound, .number = peer.in.taken_frames()},
      nullptr);
}

void LinkEngine::say_inbound(Rank rank, LinkKind kind, std::uint64_t number) {
  std::uint32_t stream = 0;
  for (const ConnectionId& id : at(rank).inbound) {
    if (!id.empty()) {
      port_.to_connection(id, {.kind = kind, .stream = stream, .number = number}, nullptr);
    }
    ++stream;
  }
}

void LinkEngine::tick(TimePoint now) {
  send_held_back(now);
  if (now < next_tick_) {
    // Between two heartbeats, so this process has not been asleep.
    for (const Rank rank : living()) {
      if (now >= gone_at(rank)) check_life(rank, now);
    }
    return;
  }
  const bool was_away = now - last_tick_ >= options_.dead_after / 2;  // stopped, or asleep
  last_tick_ = now;
  next_tick_ = now + options_.heartbeat;
  if (options_.send_bits_per_s) budget_.set_rate(now, options_.send_bits_per_s());
  for (const Rank rank : living()) {
    Peer& peer = at(rank);
    if (was_away) {
      peer.heard = peer.answered = now;
      if (peer.down_since) peer.down_since = now;
      peer.stalled_since.reset();
      peer.untaken_since.reset();
    }
    peer.in.acknowledged();
    say_inbound(rank, LinkKind::kAck, peer.in.taken_frames());
    say_keys(rank);
    for (int k = 0; k < streams_dialled(rank); ++k) {
      Stream& stream = peer.streams[static_cast<std::size_t>(k)];
      constexpr int kPatience = 5;  // heartbeats until an unanswered greeting is repeated
      if (stream.state == StreamState::kReady && !stream.blocked) {
        (void)port_.to_stream(rank, k,
                              {.kind = LinkKind::kHeartbeat,
                               .stream = static_cast<std::uint32_t>(k),
                               .number = stream.sent},
                              nullptr);
      } else if (stream.state == StreamState::kDown ||
                 (stream.state == StreamState::kGreeting &&
                  now - stream.greeted >= kPatience * options_.heartbeat)) {
        greet(rank, k, now);
      }
    }
    if (closing_) {
      say_close(rank);
    }
    settle_misfit(rank, now);
    check_life(rank, now);
  }
}

void LinkEngine::close(TimePoint now) {
  closing_ = true;
  next_tick_ = now;
  for (const Rank rank : living()) {
    at(rank).in.drop_held();
    at(rank).early.clear();  // which count as taken with the rest
    say_close(rank);
    if (!at(rank).joined) {  // there may be no connection to say it on
      give_up_on(rank, "has left before it had reached this one");
    }
  }
}

// Said again with every heartbeat until the peer has confirmed.
void LinkEngine::say_close(Rank rank) {
  Peer& peer = at(rank);
  if (peer.told || !peer.out.all_sent()) {
    return;
  }
  for (int k = 0; k < streams_dialled(rank); ++k) {
    const LinkHeader header{.kind = LinkKind::kClose,
                            .stream = static_cast<std::uint32_t>(k),
                            .number = peer.out.numbered()};
    if (peer.streams[static_cast<std::size_t>(k)].state == StreamState::kReady &&
        port_.to_stream(rank, k, header, nullptr)) {
      peer.said_close = true;
      return;
    }
  }
}

bool LinkEngine::all_told() const {
  return std::ranges::all_of(living(), [&](Rank rank) {
    const Peer& peer = at(rank);
    return peer.told || !peer.joined;
  });
}

// A peer that leaves is lost once everything it has sent is here.
void LinkEngine::settle_leave(Rank rank) {
  Peer& peer = at(rank);
  if (peer.lost || !peer.leaving || peer.in.arrived() < *peer.leaving) {
    return;
  }
  say_inbound(rank, LinkKind::kClosed);
  if (!peer.joined) {
    stand(rank);  // it was here
  }
  lose(rank, LinkEvent::Kind::kLeft, "has left");
}

}  // namespace isthmus
