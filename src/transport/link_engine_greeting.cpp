// SPDX-License-Identifier: Apache-2.0
// Connections that come and go, and who may use them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/link_engine.h"

namespace isthmus {
namespace {

FrameBytes shared(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

void LinkEngine::stream_up(Rank rank, int stream, TimePoint now) {
  if (at(rank).lost) {
    return;
  }
  port_.event({LinkEvent::Kind::kConnected, rank, stream,
               fmt::format("{}, connection {}: connected", describe(rank), stream)});
  drop_stream(rank, stream, now);
  greet(rank, stream, now);
}

void LinkEngine::stream_down(Rank rank, int stream, TimePoint now, const std::string& why) {
  Peer& peer = at(rank);
  if (peer.lost) {
    return;
  }
  peer.streams[static_cast<std::size_t>(stream)].trouble = why;
  port_.event({LinkEvent::Kind::kDisconnected, rank, stream,
               fmt::format("{}, connection {}: {}", describe(rank), stream, why)});
  drop_stream(rank, stream, now);
  pump(rank);
}

void LinkEngine::stream_trouble(Rank rank, int stream, LinkEvent::Kind kind,
                                const std::string& what) {
  Peer& peer = at(rank);
  Stream& state = peer.streams[static_cast<std::size_t>(stream)];
  if (kind == LinkEvent::Kind::kRetried && std::exchange(state.failed_before, false)) {
    return;  // why it is tried again is known better
  }
  state.trouble = what;
  // A peer that is away for an hour is not worth a line every second.
  if (std::has_single_bit(++state.troubles) && !peer.lost) {
    port_.event({kind, rank, stream,
                 fmt::format("{}, connection {}: {}, {} time{}", describe(rank), stream, what,
                             state.troubles, state.troubles == 1 ? "" : "s")});
  }
}

void LinkEngine::drop_stream(Rank rank, int stream, TimePoint now) {
  Peer& peer = at(rank);
  Stream& state = peer.streams[static_cast<std::size_t>(stream)];
  state.state = StreamState::kDown;
  state.blocked = false;
  peer.out.stream_lost(stream);
  const bool any = std::ranges::any_of(
      peer.streams, [](const Stream& other) { return other.state == StreamState::kReady; });
  if (!any && !peer.down_since) {
    peer.down_since = now;
  }
}

void LinkEngine::greet(Rank rank, int stream, TimePoint now) {
  Peer& peer = at(rank);
  Stream& state = peer.streams[static_cast<std::size_t>(stream)];
  Hello hello = hello_;
  hello.to = rank;
  const LinkHeader header{.kind = LinkKind::kHello,
                          .stream = static_cast<std::uint32_t>(stream),
                          .number = state.attempt + 1};
  if (port_.to_stream(rank, stream, header, shared(write_hello(hello)))) {
    ++state.attempt;
    state.state = StreamState::kGreeting;
    state.greeted = now;
    state.sent = 0;
  }
}

void LinkEngine::welcomed(Rank rank, const LinkHeader& header) {
  Peer& peer = at(rank);
  Stream& stream = peer.streams[header.stream];
  if (stream.state != StreamState::kGreeting || header.number != stream.attempt) {
    return;
  }
  stream.state = StreamState::kReady;
  stream.troubles = 0;
  stream.trouble.clear();
  peer.down_since.reset();
  peer.out.set_window(header.amount);
  port_.event({LinkEvent::Kind::kWelcomed, rank, static_cast<int>(header.stream),
               fmt::format("{}, connection {}: accepted", describe(rank), header.stream)});
  peer.joined = peer.joined || std::ranges::all_of(peer.streams, [](const Stream& other) {
                  return other.state == StreamState::kReady;
                });
  pump(rank);
}

void LinkEngine::refused(Rank rank, int stream, std::span<const std::byte> body) {
  Peer& peer = at(rank);
  const auto refusal = read_refusal(body);
  if (!refusal) {
    return;
  }
  if (peer.joined || refusal->field == RefusedField::kGivenUp) {
    lose(rank, LinkEvent::Kind::kLost, refusal->what);
    return;
  }
  peer.streams[static_cast<std::size_t>(stream)].trouble = refusal->what;
  if (!join_error_) {
    const std::string text =
        fmt::format("{} refuses this member: {}", describe(rank), refusal->what);
    join_error_ = JoinError{.refused = true, .field = refusal->field, .peer = rank, .what = text};
    port_.event({LinkEvent::Kind::kRefused, rank, stream, text});
  }
}

void LinkEngine::take_hello(const ConnectionId& id, const LinkHeader& header,
                            std::span<const std::byte> body, TimePoint now,
                            std::optional<Rank> owner) {
  const auto hello = read_hello(body);
  if (!hello) {
    refuse(id, {RefusedField::kMalformed, hello.error().what});
    stranger(hello.error().what);
    return;
  }
  if (!speaks_for(hello->from, owner, id)) {
    return;
  }
  if (const auto fits = accept(hello_, *hello); !fits) {
    refuse(id, fits.error());
    port_.event({LinkEvent::Kind::kRefused, Rank{-1}, static_cast<int>(header.stream),
                 fmt::format("refused: {}", fits.error().what)});
    return;
  }
  Peer& peer = at(hello->from);
  if (peer.lost) {
    refuse(id, {RefusedField::kGivenUp,
                fmt::format("member {} has counted this one as lost", options_.self.value())});
    return;
  }
  // Until frames have passed, a member may be started again.
  const bool untouched = peer.in.arrived() == 0 && peer.out.numbered() == 0;
  if (peer.incarnation && *peer.incarnation != hello->incarnation && !untouched) {
    refuse(id, {RefusedField::kIncarnation,
                fmt::format("member {} already is here as another process", hello->from.value())});
    return;
  }
  if (hello->streams != options_.streams ||
      header.stream >= static_cast<std::uint32_t>(options_.streams)) {
    refuse(id,
           {RefusedField::kConfiguration,
            fmt::format("net.streams: member {} has {}, member {} has {}", options_.self.value(),
                        options_.streams, hello->from.value(), hello->streams)});
    return;
  }
  peer.incarnation = hello->incarnation;
  peer.name = hello->name;
  peer.heard = now;
  if (const auto old = peer.inbound.find(header.stream); old != peer.inbound.end()) {
    forget(ConnectionId(old->second));
  }
  peer.inbound[header.stream] = id;
  connections_[id] = {.peer = hello->from, .stream = header.stream, .received = 0};
  port_.to_connection(id,
                      {.kind = LinkKind::kWelcome,
                       .stream = header.stream,
                       .number = header.number,
                       .amount = options_.window_bytes},
                      nullptr);
}

void LinkEngine::refuse(const ConnectionId& id, const Refusal& refusal) {
  port_.to_connection(id, {.kind = LinkKind::kRefuse}, shared(write_refusal(refusal)));
}

void LinkEngine::stranger(const std::string& what) {
  if (std::has_single_bit(++strangers_)) {
    port_.event({LinkEvent::Kind::kStranger, Rank{-1}, -1,
                 fmt::format("a stranger sent {} ({} such message{} so far)", what, strangers_,
                             strangers_ == 1 ? "" : "s")});
  }
}

void LinkEngine::forget(const ConnectionId& id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;
  }
  Peer& peer = at(found->second.peer);
  if (const auto place = peer.inbound.find(found->second.stream);
      place != peer.inbound.end() && place->second == id) {
    peer.inbound.erase(place);
  }
  connections_.erase(found);
}

bool LinkEngine::all_joined() const {
  return std::ranges::all_of(
      peers_, [&](const Peer& peer) { return peer.joined || &peer == &at(options_.self); });
}

std::string LinkEngine::describe(Rank rank) const {
  const std::string& name = at(rank).name;
  return name.empty() ? fmt::format("member {}", rank.value())
                      : fmt::format("member {} ({})", rank.value(), name);
}

std::string LinkEngine::describe_missing(std::span<const std::string> endpoints) const {
  std::string text;
  for (const Rank rank : living()) {
    const Peer& peer = at(rank);
    if (peer.joined) {
      continue;
    }
    std::string trouble = "no answer";
    int ready = 0;
    for (const Stream& stream : peer.streams) {
      ready += stream.state == StreamState::kReady ? 1 : 0;
      trouble = stream.trouble.empty() ? trouble : stream.trouble;
    }
    text += fmt::format("{}{} at {}: {} of {} connections, {}", text.empty() ? "" : "; ",
                        describe(rank), endpoints[static_cast<std::size_t>(rank.value())], ready,
                        options_.streams, trouble);
  }
  if (!hint_.empty()) text += "; " + hint_;
  return text;
}

}  // namespace isthmus
