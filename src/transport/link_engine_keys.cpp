// SPDX-License-Identifier: Apache-2.0
// Handshakes that fail and keys that do not fit, in words: what differs and what to do.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "core/check.h"
#include "transport/link_engine.h"

namespace isthmus {
namespace {

constexpr std::string_view kAllOrNone = "give every site its key (`isthmus keygen`), or none";
constexpr std::size_t kMostTexts = 64;  // strangers may bring any number of keys
// ZeroMQ tries again at once, or `zmq_sockets` each second. An end that is still starting answers
// by then; one that stands still makes handshakes fail at most every 5 s, and is none of these.
constexpr Duration kMisfitIsSure = std::chrono::seconds(5);
constexpr Duration kApart = std::chrono::milliseconds(2500);

}  // namespace

std::string LinkEngine::handshake_words(Rank rank, HandshakeFault fault) const {
  if (fault == HandshakeFault::kMechanism) {
    return with_keys()
               ? fmt::format("it speaks plain text, and this member has a key: {}", kAllOrNone)
               : fmt::format("it wants a key, and this member has none: {}", kAllOrNone);
  }
  if (!with_keys()) {
    return fmt::format(
        "handshake failed: whoever answers there {}",
        fault == HandshakeFault::kHungUp ? "is no member, or wants a key" : "is no member");
  }
  const auto label = [this](Rank member) {
    return key_label(options_.member_keys.at(static_cast<std::size_t>(member.value())));
  };
  if (fault == HandshakeFault::kKeyRefused && options_.keys_from == rank) {
    return fmt::format(
        "it lets no member with this key {} in, which is neither in its configuration nor come by "
        "an invitation, or revoked: `isthmus hub keys` tells, and an invitation brings a new one",
        label(options_.self));
  }
  if (fault == HandshakeFault::kKeyRefused) {
    return fmt::format(
        "it does not know this member's key {}: write the public key of member {}'s key file into "
        "the configuration of all sites",
        label(options_.self), options_.self.value());
  }
  return fmt::format(
      "handshake failed: whoever answers there does not have the key {}, or none at all; compare "
      "it with the public key in the key file of member {}, and the address with its own",
      label(rank), rank.value());
}

void LinkEngine::handshake_failed(Rank rank, int stream, HandshakeFault fault) {
  Peer& peer = at(rank);
  // The port that was dialled is of this machine, and answers whether or not the peer is there.
  if (fault == HandshakeFault::kHungUp && (is_relayed(options_, rank) || peer.around)) {
    stream_trouble(rank, stream, LinkEvent::Kind::kRetried,
                   with_keys() ? "no answer by way of a relay, or not from who has its key"
                               : "no answer by way of a relay");
    return;
  }
  const std::string what = handshake_words(rank, fault);
  stream_trouble(rank, stream, LinkEvent::Kind::kHandshakeFailed, what);
  peer.streams[static_cast<std::size_t>(stream)].failed_before = true;
  // Trying again helps only where the other end may have been somebody else, or half started, or
  // where it may not have heard of this member's key yet.
  const bool said_by_hub = fault == HandshakeFault::kKeyRefused && options_.keys_from &&
                           (!keys_may_come() || *options_.keys_from == rank);
  if ((fault == HandshakeFault::kMechanism || said_by_hub) && !peer.joined && !peer.lost) {
    cannot_join(rank, RefusedField::kKey, fmt::format("{}: {}", describe(rank), what));
  } else if (with_keys() && (!options_.keys_from || has_key_for_good(rank))) {
    if (!peer.misfit || now_ - peer.misfit->last > kApart) peer.misfit = {.first = now_};
    peer.misfit->last = now_;
    peer.misfit->hung_up = fault == HandshakeFault::kHungUp;
    peer.misfit->what = what;
  }
}

/// Who says whose keys count is known by the file alone, and where it gives none so are all others:
/// a key that is refused here is no member's.
bool LinkEngine::has_key_for_good(Rank rank) const {
  return options_.keys_from == rank && !options_.keys_come;
}

// Where one of two files has the wrong key, one end is told that its key is refused, and the other
// one sees that its connections are hung up on and refuses a key itself. Neither ends before both
// know. Connections that are hung up on alone tell nothing: a port that a container's proxy, a
// balancer or a tunnel holds open for a member that has not started yet does the same. Where a hub
// says whose keys count, a key may yet come, but its own.
void LinkEngine::settle_misfit(Rank rank, TimePoint now) {
  const Peer& peer = at(rank);
  if (!peer.misfit || peer.joined || peer.lost) return;
  if (now - peer.misfit->first < kMisfitIsSure || now - peer.misfit->last > kApart) return;
  if (peer.misfit->hung_up && (!foreign_key_ || now - *foreign_key_ > kApart)) return;
  cannot_join(rank, RefusedField::kKey,
              fmt::format("{}: {}{}{}", describe(rank), peer.misfit->what,
                          hint_.empty() ? "" : "; ", hint_));
}

void LinkEngine::stranger_handshake(HandshakeFault fault, const std::string& endpoint) {
  switch (fault) {
    case HandshakeFault::kMechanism:
      hint_ = with_keys()
                  ? fmt::format(
                        "someone connected to {} in plain text, and links here have keys: "
                        "{}",
                        endpoint, kAllOrNone)
                  : fmt::format("someone connected to {} with a key, and this member has none: {}",
                                endpoint, kAllOrNone);
      count_stranger(LinkEvent::Kind::kStranger, hint_);
      return;
    case HandshakeFault::kWrongAddress:
      count_stranger(
          LinkEvent::Kind::kStranger,
          fmt::format(
              "someone connected to {} for a key other than this member's {}, or with what was "
              "recorded of another connection (a replay); if it is a site, write the public key of "
              "member {}'s key file into the configuration of all sites",
              endpoint,
              key_label(options_.member_keys.at(static_cast<std::size_t>(options_.self.value()))),
              options_.self.value()));
      return;
    case HandshakeFault::kKeyRefused:
      return;  // stranger_key knows which
    case HandshakeFault::kHungUp:
    case HandshakeFault::kOther:
      count_stranger(
          LinkEvent::Kind::kStranger,
          fmt::format("someone connected to {} and does not speak the protocol", endpoint));
      return;
  }
}

void LinkEngine::stranger_key(const std::string& public_key) {
  if (awaits_keys()) return;  // it may be a member's
  foreign_key_ = now_;
  hint_ =
      fmt::format("a connection with key {} was refused: it is no member's", key_label(public_key));
  count_stranger(LinkEvent::Kind::kStranger,
                 hint_ +
                     "; if it is a site's, write its public key into the configuration of all "
                     "sites");
}

bool LinkEngine::speaks_for(Rank claimed, std::optional<Rank> owner, const ConnectionId& id) {
  if (!with_keys() || owner == claimed) {
    return true;
  }
  const std::string what = fmt::format(
      "{}: a connection opened with the key of {} says it is member {}; give all members the same "
      "keys in the same order",
      name_of(RefusedField::kKey), owner ? fmt::format("member {}", owner->value()) : "no member",
      claimed.value());
  refuse(id, {RefusedField::kKey, what});
  count_stranger(LinkEvent::Kind::kRefused, fmt::format("refused: {}", what));
  return false;
}

void LinkEngine::set_keys(const KeyTable& table) {
  ISTHMUS_CHECK(options_.keys_from == options_.self, options_.self.value());
  if (keys_version_ == table.version) return;
  keys_version_ = table.version;
  use_keys(table.members);
  for (const Rank rank : living()) say_keys(rank);
}

void LinkEngine::take_keys(Rank from, std::span<const std::byte> body) {
  if (!options_.keys_from || from != *options_.keys_from || from == options_.self) return;
  const auto table = read_key_table(body, options_.members);
  if (!table) {
    stranger(table.error().what);
    return;
  }
  if (keys_version_ && table->version <= *keys_version_) return;  // said again, or overtaken
  keys_version_ = table->version;
  std::vector<std::string> keys = table->members;
  for (std::size_t member = 0; member < keys.size(); ++member) {
    const std::string& known = file_keys_[member];
    if (!known.empty() && !keys[member].empty() && keys[member] != known) {
      stranger(fmt::format("another key for member {} than the configuration has", member));
      keys[member].clear();
    }
  }
  // Its own link to here stands, and without a key of its own this member would not be asked.
  for (const Rank rank : {from, options_.self}) {
    keys[static_cast<std::size_t>(rank.value())] =
        options_.member_keys[static_cast<std::size_t>(rank.value())];
  }
  use_keys(keys);
}

void LinkEngine::use_keys(const std::vector<std::string>& keys) {
  port_.keys_changed(keys);  // who is dialled now is known by then
  for (std::size_t member = 0; member < keys.size(); ++member) {
    if (options_.member_keys[member] != keys[member]) {
      change_key(Rank(static_cast<int>(member)), keys[member]);
    }
  }
}

void LinkEngine::change_key(Rank rank, const std::string& key) {
  const bool had_one =
      !std::exchange(options_.member_keys[static_cast<std::size_t>(rank.value())], key).empty();
  if (rank == options_.self) return;
  Peer& peer = at(rank);
  if (had_one) {
    lose(rank, LinkEvent::Kind::kLost, "its key counts no more");
    for (const ConnectionId& id : std::vector<ConnectionId>(peer.inbound)) forget(id);
  }
  std::erase_if(join_errors_, [&](const JoinError& error) { return error.peer == rank; });
  if (key.empty()) {
    port_.hang_up(rank);
  } else if (peer.lost) {
    begin_anew(rank);
  } else {
    port_.dial_again(rank);
  }
}

// With every heartbeat again: what is said on a connection that breaks is lost.
void LinkEngine::say_keys(Rank rank) {
  if (options_.keys_from != options_.self || !keys_version_) return;
  const Peer& peer = at(rank);
  const ConnectionId& id = peer.inbound[peer.last_inbound];
  if (id.empty()) return;
  port_.to_connection(
      id, {.kind = LinkKind::kKeys, .stream = peer.last_inbound},
      std::make_shared<const std::vector<std::byte>>(write_key_table(
          {.version = *keys_version_, .members = options_.member_keys, .guests = {}})));
}

void LinkEngine::count_stranger(LinkEvent::Kind kind, const std::string& what) {
  const bool room = strangers_by_text_.size() < kMostTexts || strangers_by_text_.contains(what);
  const std::uint64_t times = ++strangers_by_text_[room ? what : std::string()];
  if (std::has_single_bit(times)) {
    port_.event({kind, Rank{-1}, -1,
                 fmt::format("{}, {} {}", what, times,
                             !room        ? "times with others"
                             : times == 1 ? "time"
                                          : "times")});
  }
}

}  // namespace isthmus
