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

std::string streams_text(const Hello& hello) {
  return hello.most_streams == 0 ? std::to_string(hello.streams)
                                 : fmt::format("auto, {} to {}", hello.streams, hello.most_streams);
}

}  // namespace

void LinkEngine::stream_up(Rank rank, int stream, TimePoint now) {
  if (at(rank).lost) {
    return;
  }
  port_.event({LinkEvent::Kind::kConnected, rank, stream,
               fmt::format("{}, connection {}: connected", describe(rank), stream)});
  at(rank).misfit.reset();
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
  const bool stood = state.state == StreamState::kReady;
  state.state = StreamState::kDown;
  state.blocked = false;
  peer.out.stream_lost(stream);
  const bool any = std::ranges::any_of(
      peer.streams, [](const Stream& other) { return other.state == StreamState::kReady; });
  if (stood && !any && !peer.down_since) {
    peer.down_since = now;
  }
}

void LinkEngine::rerouted(Rank rank, bool around, TimePoint now) {
  Peer& peer = at(rank);
  peer.around = around;
  const std::optional<TimePoint> down_since = peer.down_since;
  for (int k = 0; k < streams_dialled(rank); ++k) drop_stream(rank, k, now);
  peer.down_since = down_since;
  peer.answered = now;
  peer.stalled_since.reset();
  peer.untaken_since.reset();
}

void LinkEngine::greet(Rank rank, int stream, TimePoint now) {
  Peer& peer = at(rank);
  Stream& state = peer.streams[static_cast<std::size_t>(stream)];
  Hello hello = hello_;
  hello.to = rank;
  const LinkHeader header{.kind = LinkKind::kHello,
                          .stream = static_cast<std::uint32_t>(stream),
                          .number = peer.greetings + 1};
  state.blocked = !port_.to_stream(rank, stream, header, shared(write_hello(hello)));
  if (!state.blocked) {
    state.attempt = ++peer.greetings;
    state.state = StreamState::kGreeting;
    state.greeted = now;
    state.sent = 0;
  }
}

void LinkEngine::welcomed(Rank rank, const LinkHeader& header, std::span<const std::byte> body,
                          TimePoint now) {
  Peer& peer = at(rank);
  Stream& stream = peer.streams[header.stream];
  if (stream.state != StreamState::kGreeting || header.number != stream.attempt) {
    return;
  }
  if (options_.readmits && !answers_for(rank, static_cast<int>(header.stream), body, now)) {
    stream.state = StreamState::kDown;  // greeted again at the next heartbeat
    return;
  }
  if (header.amount < kSmallestWindow) {  // the biggest frame could wait for ever
    lose(rank, LinkEvent::Kind::kLost,
         fmt::format("it takes only {} bytes at a time, and must take {}", header.amount,
                     kSmallestWindow));
    return;
  }
  stream.state = StreamState::kReady;
  stream.troubles = 0;
  stream.trouble.clear();
  peer.down_since.reset();
  peer.out.set_window(header.amount);
  port_.event({LinkEvent::Kind::kWelcomed, rank, static_cast<int>(header.stream),
               fmt::format("{}, connection {}: accepted", describe(rank), header.stream)});
  settle_joined(rank);
  pump(rank);
}

void LinkEngine::refused(Rank rank, int stream, std::span<const std::byte> body) {
  Peer& peer = at(rank);
  const auto refusal = read_refusal(body);
  if (!refusal) {
    return;
  }
  if (peer.joined) {
    lose(rank, LinkEvent::Kind::kLost, refusal->what,
         refusal->field == RefusedField::kGivenUp ? LossCause::kGivenUp : LossCause::kGone);
    return;
  }
  Stream& state = peer.streams[static_cast<std::size_t>(stream)];
  if (refusal->field == RefusedField::kIncarnation || refusal->field == RefusedField::kGivenUp) {
    // Said of a predecessor of this process, or by one of the peer that is about to vanish: greeted
    // again at the next heartbeat, until whoever waits for the members has waited enough.
    state.state = StreamState::kDown;
    stream_trouble(rank, stream, LinkEvent::Kind::kRefused, refusal->what);
    return;
  }
  state.trouble = refusal->what;
  std::string text = fmt::format("{} refuses this member: {}", describe(rank), refusal->what);
  if (refusal->field == RefusedField::kRun) {
    text += fmt::format("; member {} has {}", options_.self.value(), hello_.run.hex());
  }
  if (!join_error(std::span(&rank, 1))) {
    port_.event({LinkEvent::Kind::kRefused, rank, stream, text});
  }
  cannot_join(rank, refusal->field, text);
}

void LinkEngine::cannot_join(Rank rank, RefusedField field, const std::string& why) {
  if (!join_error(std::span(&rank, 1))) {
    join_errors_.push_back({.refused = true, .field = field, .peer = rank, .what = why});
  }
}

// The other one ends as soon as it has read the refusal, perhaps before it answers where this
// member dials it. So what its greeting says is known here too, if it is its own: by its key, or
// within this machine of the same run.
void LinkEngine::differs(const Hello& theirs, const Refusal& refusal) {
  const bool member = theirs.from != options_.self && theirs.from.value() >= 0 &&
                      theirs.from.value() < options_.members;
  const bool same_run = theirs.protocol == hello_.protocol && theirs.run == hello_.run;
  if (!member || !(with_keys() || (same_run && !options_.plaintext))) return;
  const Peer& peer = at(theirs.from);
  if (peer.joined || peer.lost) return;
  cannot_join(theirs.from, refusal.field,
              fmt::format("{} differs: {}", describe(theirs.from), refusal.what));
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
    Refusal told = fits.error();
    if (told.field == RefusedField::kRun) {  // whoever asks may be a stranger
      told.what = fmt::format("{}: member {} is of another run", name_of(told.field),
                              options_.self.value());
    }
    refuse_and_tell(id, told, header.stream, fits.error().what);
    differs(*hello, fits.error());
    return;
  }
  Peer& peer = at(hello->from);
  const bool replaces = peer.incarnation && *peer.incarnation != hello->incarnation;
  if (closing_ && replaces && peer.joined && may_replace(peer, now)) {
    // Who ends is nobody to be met by a new process, which would lose it a moment later.
    lose(hello->from, LinkEvent::Kind::kLost, "another process has taken its place");
  }
  const bool returns = options_.readmits && !closing_ && peer.incarnation != hello->incarnation;
  if (peer.lost && !returns) {
    refuse_and_tell(id,
                    {RefusedField::kGivenUp,
                     fmt::format("member {} has counted this one as lost", options_.self.value())},
                    header.stream,
                    fmt::format("{} greets, and has been counted as lost", describe(hello->from)));
    return;
  }
  if ((replaces && !may_replace(peer, now)) || is_former(peer, hello->incarnation)) {
    const std::string why =
        fmt::format("another process is member {} already", hello->from.value());
    refuse_and_tell(id, {RefusedField::kIncarnation, why}, header.stream, why);
    return;
  }
  if (hello->streams != options_.streams || hello->most_streams != options_.most_streams ||
      header.stream >= peer.inbound.size()) {
    const std::string why =
        fmt::format("net.streams: member {} has {}, member {} has {}", options_.self.value(),
                    streams_text(hello_), hello->from.value(), streams_text(*hello));
    refuse_and_tell(id, {RefusedField::kConfiguration, why},
                    header.stream < static_cast<std::uint32_t>(hello->streams) ? header.stream : 0,
                    why);
    differs(*hello, {RefusedField::kConfiguration, why});
    return;
  }
  if (peer.incarnation == hello->incarnation && header.number < peer.next_greeting[header.stream]) {
    // Somebody says what was once recorded, or a connection that broke brings it late.
    count_stranger(
        LinkEvent::Kind::kStranger,
        fmt::format("{}, connection {}: a greeting of before has come again (a replay?), "
                    "and changes nothing",
                    describe(hello->from), header.stream));
    return;
  }
  if (options_.readmits && (peer.lost || replaces)) {
    if (peer.joined) {
      lose(hello->from, LinkEvent::Kind::kLost, "another process has taken its place");
    }
    begin_anew(hello->from);
  } else if (replaces) {
    peer.superseded.push_back(*peer.incarnation);
    for (const ConnectionId& old : std::vector<ConnectionId>(peer.inbound)) forget(old);
    std::ranges::fill(peer.next_greeting, 0);
  }
  peer.incarnation = hello->incarnation;
  peer.name = hello->name;
  peer.heard = now;
  peer.spoke = now;
  forget(id);
  forget(ConnectionId(peer.inbound[header.stream]));
  peer.inbound[header.stream] = id;
  peer.next_greeting[header.stream] = header.number + 1;
  peer.last_inbound = header.stream;
  connections_[id] = {.peer = hello->from, .stream = header.stream, .received = 0};
  port_.to_connection(id,
                      {.kind = LinkKind::kWelcome,
                       .stream = header.stream,
                       .number = header.number,
                       .amount = options_.window_bytes},
                      shared(write_incarnation(hello_.incarnation)));
  say_keys(hello->from);
  settle_joined(hello->from);
}

void LinkEngine::refuse(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream) {
  port_.to_connection(id, {.kind = LinkKind::kRefuse, .stream = stream},
                      shared(write_refusal(refusal)));
}

void LinkEngine::refuse_and_tell(const ConnectionId& id, const Refusal& refusal,
                                 std::uint32_t stream, const std::string& what) {
  refuse(id, refusal, stream);
  count_stranger(LinkEvent::Kind::kRefused, fmt::format("refused: {}", what));
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
  if (ConnectionId& place = at(found->second.peer).inbound[found->second.stream]; place == id) {
    place.clear();
  }
  connections_.erase(found);
}

bool LinkEngine::have_joined(std::span<const Rank> these) const {
  return std::ranges::all_of(these, [&](Rank rank) {
    return rank == options_.self || (at(rank).joined && !(options_.readmits && at(rank).lost));
  });
}

std::optional<JoinError> LinkEngine::join_error(std::span<const Rank> these) const {
  for (const JoinError& error : join_errors_) {
    if (std::ranges::find(these, error.peer) != these.end()) {
      return error;
    }
  }
  return std::nullopt;
}

std::string LinkEngine::describe(Rank rank) const {
  const auto place = static_cast<std::size_t>(rank.value());
  std::string name = at(rank).name;
  if (name.empty() && place < options_.expected_names.size()) {
    name = options_.expected_names[place];
  }
  return name.empty() ? fmt::format("member {}", rank.value())
                      : fmt::format("member {} ({})", rank.value(), name);
}

std::string LinkEngine::describe_missing(std::span<const Rank> these,
                                         std::span<const std::string> endpoints) const {
  std::string text;
  for (const Rank rank : living()) {
    const Peer& peer = at(rank);
    if (peer.joined || std::ranges::find(these, rank) == these.end()) {
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
