// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/link_dialling.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(100);
constexpr Duration kNoRoomToDial = std::chrono::seconds(1);  // after there was no socket or file

}  // namespace

void LinkDialling::begin(std::span<const std::string> endpoints,
                         std::span<const std::string> detours) {
  endpoints_.assign(endpoints.begin(), endpoints.end());
  for (std::size_t place = 0; place < endpoints.size(); ++place) {
    const WorkerId peer(static_cast<int>(place));
    if (peer == options_.self) continue;
    if (place < detours.size() && !detours[place].empty()) {
      ways_.emplace(peer.value(), Way{LinkWay(options_.dead_after), detours[place]});
    }
    dial(peer);
  }
}

bool LinkDialling::goes_around(WorkerId peer) const {
  const auto way = ways_.find(peer.value());
  return way != ways_.end() && way->second.choice.around();
}

void LinkDialling::dial(WorkerId peer) {
  const auto way = ways_.find(peer.value());
  if (way != ways_.end()) way->second.choice.begin();
  const bool around = goes_around(peer);
  sockets_.dial(peer, around ? way->second.detour : direct(peer), around);
}

void LinkDialling::look(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  for (auto& [place, way] : ways_) {
    if (engine_.is_lost(WorkerId(place))) continue;  // it is not dialled
    try {
      look_at(WorkerId(place), way, now);
    } catch (const SystemError& error) {  // those that are there do
      event_({LinkEvent::Kind::kRetried, WorkerId(place), -1, error.what()});
      next_look_ = now + kNoRoomToDial;
    }
  }
}

void LinkDialling::look_at(WorkerId peer, Way& way, TimePoint now) {
  LinkSigns signs = engine_.signs(peer);
  signs.other_stands_since = sockets_.beside_stands_since(peer);
  switch (way.choice.observe(now, signs)) {
    case LinkWay::Act::kNone:
      break;
    case LinkWay::Act::kTryOther:
      try {
        sockets_.dial_beside(peer, way.choice.around() ? direct(peer) : way.detour);
      } catch (const SystemError&) {
        way.choice.begin();
        throw;
      }
      break;
    case LinkWay::Act::kLeaveOther:
      sockets_.end_beside(peer);
      break;
    case LinkWay::Act::kTakeOther:
      tell_taken(peer, way.choice.around(), signs, now);
      sockets_.take_over(engine_, peer, way.choice.around(), now);
      break;
    case LinkWay::Act::kDialAnew:
      engine_.rerouted(peer, true, now);
      sockets_.hang_up(peer);
      dial(peer);
      break;
  }
  // A way that was taken over has one connection. TCP's counters of a detour are not the peer's, so
  // only the first number of connections is used there.
  sockets_.dial_more(peer, way.choice.around() ? options_.streams : engine_.streams_dialled(peer));
}

void LinkDialling::tell_taken(WorkerId peer, bool around, const LinkSigns& signs,
                              TimePoint now) const {
  const auto place = static_cast<std::size_t>(peer.value());
  const std::string who = place < options_.expected_names.size()
                              ? "site " + options_.expected_names[place]
                              : fmt::format("member {}", place);
  // In a cut of everything the last answer is as old as the last byte that got through.
  const bool small_ones_pass =
      signs.stalled_since && 2 * (now - signs.answered) < now - *signs.stalled_since;
  event_({LinkEvent::Kind::kRerouted, peer, -1,
          !around ? fmt::format("what goes to {} goes directly again", who)
          : signs.down_since
              ? fmt::format("what goes to {} goes by way of a relay from now on: the connections "
                            "broke and do not come back",
                            who)
          : small_ones_pass
              ? fmt::format("what goes to {} goes by way of a relay from now on: small packets "
                            "reach it directly, but nothing larger has for {:.1f} s",
                            who, in_seconds(now - *signs.stalled_since))
              : fmt::format("what goes to {} goes by way of a relay from now on: it has not "
                            "answered directly for {:.1f} s",
                            who, in_seconds(now - signs.answered))});
}

}  // namespace isthmus
