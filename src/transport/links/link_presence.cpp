// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_presence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace isthmus {

void LinkPresence::settle_joined(WorkerId rank) {
  const LinkPeer& peer = all_.at(rank);
  const bool accepted = std::ranges::all_of(peer.dialled.streams, &LinkStream::ready);
  const bool greeted = std::ranges::none_of(  // on those that everyone dials from the beginning
      std::span(peer.accepted.ids).first(static_cast<std::size_t>(all_.options.streams)),
      [](const ConnectionId& id) { return id.empty(); });
  if (!peer.joined && accepted && (greeted || !all_.options.readmits)) {
    stand(rank);
  }
}

void LinkPresence::stand(WorkerId rank) {
  LinkPeer& peer = all_.at(rank);
  peer.joined = true;
  if (all_.options.readmits) {
    may_join_again(rank);
  }
  if (std::exchange(peer.away, false)) {
    all_.port.event({LinkEvent::Kind::kWelcomed, rank, -1,
                     fmt::format("{}: is here now", all_.describe(rank))});
    all_.port.back(rank);
  }
  receiving_.hand_out_early(rank);
  sending_.pump(rank);
}

void LinkPresence::lose(WorkerId rank, LinkEvent::Kind kind, const std::string& why,
                        LossCause cause) {
  LinkPeer& peer = all_.at(rank);
  if (peer.lost) {
    return;
  }
  const std::string text = fmt::format("{}: {}", all_.describe(rank), why);
  if (kind == LinkEvent::Kind::kLost) {
    connections_.give_up_on(rank, "has counted this one as lost");
  }
  if (!peer.joined) {
    cannot_join(rank, RefusedField::kGivenUp, text);
  }
  peer.lost = true;
  all_.port.event({kind, rank, -1, text});
  all_.port.hang_up(rank);
  if (!peer.away && (peer.joined || !all_.options.readmits)) {
    peer.away = true;
    ++peer.times_away;
    peer.out.clear();
    all_.port.lost(rank, cause, text);
  }
}

void LinkPresence::settle_leave(WorkerId rank) {
  const LinkPeer& peer = all_.at(rank);
  if (peer.lost || !peer.farewell.leaving || peer.in.arrived() < *peer.farewell.leaving) {
    return;
  }
  connections_.say(rank, LinkKind::kClosed);
  if (!peer.joined) {
    stand(rank);  // the peer was here
  }
  lose(rank, LinkEvent::Kind::kLeft, "has left");
}

void LinkPresence::begin_anew(WorkerId rank) {
  LinkPeer& former = all_.at(rank);
  connections_.forget_all(rank);
  LinkPeer fresh = all_.unknown();
  if (!former.joined) {
    fresh.out = std::move(former.out);  // of which nothing has gone
  }
  fresh.dialled.use = std::min(former.dialled.use, fresh.dialled.use);
  fresh.dialled.around = former.dialled.around;
  fresh.dialled.greetings = former.dialled.greetings;
  fresh.away = former.away;
  fresh.times_away = former.times_away;
  fresh.process.superseded = std::move(former.process.superseded);
  if (former.process.incarnation) {
    fresh.process.superseded.push_back(*former.process.incarnation);
  }
  former = std::move(fresh);
  all_.port.dial_again(rank);
}

std::vector<WorkerId> LinkPresence::begin_without_absent() {
  std::vector<WorkerId> absent;
  for (int member = 0; member < all_.options.members; ++member) {
    LinkPeer& peer = all_.at(WorkerId(member));
    if (WorkerId(member) == all_.options.self || peer.joined) {
      continue;
    }
    absent.push_back(WorkerId(member));
    if (!std::exchange(peer.away, true)) {
      ++peer.times_away;
      peer.out.clear();
    }
  }
  return absent;
}

void LinkPresence::cannot_join(WorkerId rank, RefusedField field, const std::string& why) {
  if (!has_join_error(rank)) {
    join_errors_.push_back({.refused = true, .field = field, .peer = rank, .what = why});
  }
}

void LinkPresence::may_join_again(WorkerId rank) {
  std::erase_if(join_errors_, [&](const JoinError& error) { return error.peer == rank; });
}

bool LinkPresence::have_joined(std::span<const WorkerId> these) const {
  return std::ranges::all_of(these, [&](WorkerId rank) {
    return rank == all_.options.self ||
           (all_.at(rank).joined && !(all_.options.readmits && all_.at(rank).lost));
  });
}

std::optional<JoinError> LinkPresence::join_error(std::span<const WorkerId> these) const {
  for (const JoinError& error : join_errors_) {
    if (std::ranges::find(these, error.peer) != these.end()) {
      return error;
    }
  }
  return std::nullopt;
}

std::string LinkPresence::describe_missing(std::span<const WorkerId> these,
                                           std::span<const std::string> endpoints) const {
  std::string text;
  for (const WorkerId rank : all_.living()) {
    const LinkPeer& peer = all_.at(rank);
    if (peer.joined || std::ranges::find(these, rank) == these.end()) {
      continue;
    }
    std::string trouble = "no answer";
    int ready = 0;
    for (const LinkStream& stream : peer.dialled.streams) {
      ready += stream.ready() ? 1 : 0;
      trouble = stream.trouble.empty() ? trouble : stream.trouble;
    }
    text += fmt::format("{}{} at {}: {} of {} connections, {}", text.empty() ? "" : "; ",
                        all_.describe(rank), endpoints[static_cast<std::size_t>(rank.value())],
                        ready, all_.options.streams, trouble);
  }
  return text;
}

bool LinkPresence::all_told() const {
  return std::ranges::all_of(all_.living(), [&](WorkerId rank) {
    const LinkPeer& peer = all_.at(rank);
    return peer.farewell.told || !peer.joined;
  });
}

}  // namespace isthmus
