// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_greeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

namespace isthmus {
namespace {

// ZeroMQ retries a failed handshake at once, or `zmq_sockets` each second. A peer that is still
// starting answers within these times. A peer that stands still makes a handshake fail at most
// every 5 s, and such failures are too far apart to count as a key mismatch.
constexpr Duration kMisfitIsSure = std::chrono::seconds(5);
constexpr Duration kApart = std::chrono::milliseconds(2500);

}  // namespace

void LinkGreeting::stream_up(WorkerId rank, int stream, TimePoint now) {
  if (all_.at(rank).lost) {
    return;
  }
  all_.port.event({LinkEvent::Kind::kConnected, rank, stream,
                   fmt::format("{}, connection {}: connected", all_.describe(rank), stream)});
  all_.at(rank).misfit.reset();
  drop(rank, stream, now);
  greet(rank, stream, now);
}

void LinkGreeting::stream_down(WorkerId rank, int stream, TimePoint now, const std::string& why) {
  LinkPeer& peer = all_.at(rank);
  if (peer.lost) {
    return;
  }
  peer.dialled.streams[static_cast<std::size_t>(stream)].trouble = why;
  all_.port.event({LinkEvent::Kind::kDisconnected, rank, stream,
                   fmt::format("{}, connection {}: {}", all_.describe(rank), stream, why)});
  drop(rank, stream, now);
  sending_.pump(rank);
}

void LinkGreeting::stream_trouble(WorkerId rank, int stream, LinkEvent::Kind kind,
                                  const std::string& what) {
  LinkPeer& peer = all_.at(rank);
  LinkStream& state = peer.dialled.streams[static_cast<std::size_t>(stream)];
  if (kind == LinkEvent::Kind::kRetried && std::exchange(state.failed_before, false)) {
    return;  // the cause of the retry is known better
  }
  state.trouble = what;
  // A peer that is away for an hour is not worth a line every second.
  if (std::has_single_bit(++state.troubles) && !peer.lost) {
    all_.port.event({kind, rank, stream,
                     fmt::format("{}, connection {}: {}, {} time{}", all_.describe(rank), stream,
                                 what, state.troubles, state.troubles == 1 ? "" : "s")});
  }
}

void LinkGreeting::drop(WorkerId rank, int stream, TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  LinkStream& state = peer.dialled.streams[static_cast<std::size_t>(stream)];
  const bool stood = state.ready();
  state.state = LinkStream::State::kDown;
  state.blocked = false;
  peer.out.stream_lost(stream);
  const bool any = std::ranges::any_of(peer.dialled.streams, &LinkStream::ready);
  if (stood && !any && !peer.life.down_since) {
    peer.life.down_since = now;
  }
}

void LinkGreeting::drop_all(WorkerId rank, TimePoint now) {
  for (int k = 0; k < all_.streams_dialled(rank); ++k) drop(rank, k, now);
}

void LinkGreeting::writable(WorkerId rank, int stream) {
  LinkPeer& peer = all_.at(rank);
  LinkStream& state = peer.dialled.streams[static_cast<std::size_t>(stream)];
  state.blocked = false;
  if (state.state == LinkStream::State::kDown && !peer.lost) {
    // The connection did not take the greeting before; a time within a heartbeat is exact enough.
    greet(rank, stream, all_.last_beat);
  }
  sending_.pump(rank);
}

void LinkGreeting::greet(WorkerId rank, int stream, TimePoint now) {
  LinkPeer::Dialled& dialled = all_.at(rank).dialled;
  LinkStream& state = dialled.streams[static_cast<std::size_t>(stream)];
  Hello hello = all_.hello;
  hello.to = rank;
  const LinkHeader header{.kind = LinkKind::kHello,
                          .stream = static_cast<std::uint32_t>(stream),
                          .number = dialled.greetings + 1};
  state.blocked = !all_.port.to_stream(
      rank, stream, header, std::make_shared<const std::vector<std::byte>>(write_hello(hello)));
  if (!state.blocked) {
    state.attempt = ++dialled.greetings;
    state.state = LinkStream::State::kGreeting;
    state.greeted = now;
    state.sent = 0;
  }
}

void LinkGreeting::beat(WorkerId rank, TimePoint now) {
  constexpr int kPatience = 5;  // heartbeats until an unanswered greeting is repeated
  for (int k = 0; k < all_.streams_dialled(rank); ++k) {
    const LinkStream& stream = all_.at(rank).dialled.streams[static_cast<std::size_t>(k)];
    if (stream.ready() && !stream.blocked) {
      (void)all_.port.to_stream(rank, k,
                                {.kind = LinkKind::kHeartbeat,
                                 .stream = static_cast<std::uint32_t>(k),
                                 .number = stream.sent},
                                nullptr);
    } else if (stream.state == LinkStream::State::kDown ||
               (stream.state == LinkStream::State::kGreeting &&
                now - stream.greeted >= kPatience * all_.options.heartbeat)) {
      greet(rank, k, now);
    }
  }
}

void LinkGreeting::welcomed(WorkerId rank, const LinkHeader& header,
                            std::span<const std::byte> body, TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  LinkStream& stream = peer.dialled.streams[header.stream];
  if (stream.state != LinkStream::State::kGreeting || header.number != stream.attempt) {
    return;
  }
  if (all_.options.readmits && !answers_for(rank, static_cast<int>(header.stream), body, now)) {
    stream.state = LinkStream::State::kDown;  // the next heartbeat greets again
    return;
  }
  if (header.amount < kSmallestWindow) {  // the biggest frame could wait for ever
    presence_.lose(rank, LinkEvent::Kind::kLost,
                   fmt::format("it takes only {} bytes at a time, and must take {}", header.amount,
                               kSmallestWindow));
    return;
  }
  stream.state = LinkStream::State::kReady;
  stream.troubles = 0;
  stream.trouble.clear();
  peer.life.down_since.reset();
  peer.out.set_window(header.amount);
  all_.port.event({LinkEvent::Kind::kWelcomed, rank, static_cast<int>(header.stream),
                   fmt::format("{}, connection {}: accepted", all_.describe(rank), header.stream)});
  presence_.settle_joined(rank);
  sending_.pump(rank);
}

// The address of a lost process may be answered by the next process before that has greeted this
// member. Frames of this link that are yet to be acknowledged are not for the next process.
bool LinkGreeting::answers_for(WorkerId rank, int stream, std::span<const std::byte> body,
                               TimePoint now) {
  LinkPeer& peer = all_.at(rank);
  const auto incarnation = read_incarnation(body);
  if (incarnation && !peer.process.incarnation && !peer.is_former(*incarnation)) {
    peer.process.incarnation = *incarnation;
    peer.life.spoke = now;
  }
  if (incarnation && peer.process.incarnation == *incarnation) {
    peer.life.heard = peer.life.answered = now;
    return true;
  }
  stream_trouble(rank, stream, LinkEvent::Kind::kRefused,
                 incarnation ? "another process answers there than the one that was met before"
                             : incarnation.error().what);
  if (all_.closing && incarnation && peer.joined && !peer.is_former(*incarnation)) {
    // The former process takes no farewell any more, and the next one waits for this process to
    // end.
    presence_.lose(rank, LinkEvent::Kind::kLost, "another process answers in its place");
  }
  return false;
}

void LinkGreeting::refused(WorkerId rank, int stream, std::span<const std::byte> body) {
  LinkPeer& peer = all_.at(rank);
  const auto refusal = read_refusal(body);
  if (!refusal) {
    return;
  }
  if (peer.joined) {
    presence_.lose(
        rank, LinkEvent::Kind::kLost, refusal->what,
        refusal->field == RefusedField::kGivenUp ? LossCause::kGivenUp : LossCause::kGone);
    return;
  }
  LinkStream& state = peer.dialled.streams[static_cast<std::size_t>(stream)];
  if (refusal->field == RefusedField::kIncarnation || refusal->field == RefusedField::kGivenUp) {
    // The refusal means a predecessor of this process, or comes from a process of the peer that is
    // about to vanish. Heartbeats greet again until the wait for the members is over.
    state.state = LinkStream::State::kDown;
    stream_trouble(rank, stream, LinkEvent::Kind::kRefused, refusal->what);
    return;
  }
  state.trouble = refusal->what;
  std::string text = fmt::format("{} refuses this member: {}", all_.describe(rank), refusal->what);
  if (refusal->field == RefusedField::kRun) {
    text += fmt::format("; member {} has {}", all_.options.self.value(), all_.hello.run.hex());
  }
  if (!presence_.has_join_error(rank)) {
    all_.port.event({LinkEvent::Kind::kRefused, rank, stream, text});
  }
  presence_.cannot_join(rank, refusal->field, text);
}

std::string LinkGreeting::handshake_words(WorkerId rank, HandshakeFault fault) const {
  const MemberOptions& options = all_.options;
  if (fault == HandshakeFault::kMechanism) {
    return all_.with_keys()
               ? fmt::format("it speaks plain text, and this member has a key: {}", kKeysAllOrNone)
               : fmt::format("it wants a key, and this member has none: {}", kKeysAllOrNone);
  }
  if (!all_.with_keys()) {
    return fmt::format(
        "handshake failed: the process at that address {}",
        fault == HandshakeFault::kHungUp ? "is no member, or wants a key" : "is no member");
  }
  const auto label = [&](WorkerId member) {
    return key_label(options.member_keys.at(static_cast<std::size_t>(member.value())));
  };
  if (fault == HandshakeFault::kKeyRefused && options.keys_from == rank) {
    return fmt::format(
        "it lets no member with this key {} in, which is neither in its configuration nor come by "
        "an invitation, or revoked: `isthmus hub keys` tells, and an invitation brings a new one",
        label(options.self));
  }
  if (fault == HandshakeFault::kKeyRefused) {
    return fmt::format(
        "it does not know this member's key {}: write the public key of member {}'s key file into "
        "the configuration of all sites",
        label(options.self), options.self.value());
  }
  return fmt::format(
      "handshake failed: the process at that address does not have the key {}, or has none; "
      "compare it with the public key in the key file of member {}, and check the address",
      label(rank), rank.value());
}

void LinkGreeting::handshake_failed(WorkerId rank, int stream, HandshakeFault fault) {
  LinkPeer& peer = all_.at(rank);
  // The port that was dialled is of this machine, and answers whether or not the peer is there.
  if (fault == HandshakeFault::kHungUp && all_.passed_on(rank)) {
    stream_trouble(rank, stream, LinkEvent::Kind::kRetried,
                   all_.with_keys() ? "no answer through a relay, or an answer under another key"
                                    : "no answer through a relay");
    return;
  }
  const std::string what = handshake_words(rank, fault);
  stream_trouble(rank, stream, LinkEvent::Kind::kHandshakeFailed, what);
  peer.dialled.streams[static_cast<std::size_t>(stream)].failed_before = true;
  // Another attempt helps only if another process may have answered, or a process that was half
  // started, or one that has not heard of this member's key yet.
  const bool said_by_hub = fault == HandshakeFault::kKeyRefused && all_.options.keys_from &&
                           (!keys_.may_come() || *all_.options.keys_from == rank);
  if ((fault == HandshakeFault::kMechanism || said_by_hub) && !peer.joined && !peer.lost) {
    presence_.cannot_join(rank, RefusedField::kKey,
                          fmt::format("{}: {}", all_.describe(rank), what));
  } else if (all_.with_keys() && (!all_.options.keys_from || keys_.final_for(rank))) {
    if (!peer.misfit || all_.now - peer.misfit->last > kApart) peer.misfit = {.first = all_.now};
    peer.misfit->last = all_.now;
    peer.misfit->hung_up = fault == HandshakeFault::kHungUp;
    peer.misfit->what = what;
  }
}

// If one of two files has the wrong key, one end is told that its key is refused; the other end
// sees its connections closed and refuses a key itself. Neither gives up before both know. Closed
// connections prove nothing by themselves: a port that a container's proxy, a balancer or a tunnel
// holds open for a member that has not started yet behaves the same. If a hub says whose keys
// count, a key may yet come, but not the hub's own.
void LinkGreeting::settle_misfit(WorkerId rank, TimePoint now) {
  const LinkPeer& peer = all_.at(rank);
  if (!peer.misfit || peer.joined || peer.lost) return;
  if (now - peer.misfit->first < kMisfitIsSure || now - peer.misfit->last > kApart) return;
  const std::optional<TimePoint>& foreign_key = strangers_.last_foreign_key();
  if (peer.misfit->hung_up && (!foreign_key || now - *foreign_key > kApart)) return;
  const std::string& hint = strangers_.hint();
  presence_.cannot_join(rank, RefusedField::kKey,
                        fmt::format("{}: {}{}{}", all_.describe(rank), peer.misfit->what,
                                    hint.empty() ? "" : "; ", hint));
}

}  // namespace isthmus
