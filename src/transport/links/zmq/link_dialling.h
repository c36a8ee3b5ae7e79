// SPDX-License-Identifier: Apache-2.0
// The endpoints that a member dials: each peer's own, or its detour if that fails. Carries out on
// sockets and engine what LinkWay decides. Belongs to the task that owns both.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "transport/links/link_engine.h"
#include "transport/links/link_way.h"
#include "transport/links/zmq/zmq_sockets.h"

namespace isthmus {

class LinkDialling {
 public:
  /// Borrows all. `event`: reports that connections use another path.
  LinkDialling(const MemberOptions& options, LinkEngine& engine, ZmqSockets& sockets,
               std::function<void(const LinkEvent&)> event)
      : options_(options), engine_(engine), sockets_(sockets), event_(std::move(event)) {}

  /// As NetworkTransport::join; dials all. Call once.
  void begin(std::span<const std::string> endpoints, std::span<const std::string> detours);
  /// Redials, on the path that was used last.
  void dial(WorkerId peer);
  /// Checks the peers' signs, and may move connections. Call in every turn.
  void look(TimePoint now);
  /// The time of the next useful `look`; kNever without detours.
  [[nodiscard]] TimePoint next_look() const { return ways_.empty() ? kNever : next_look_; }
  [[nodiscard]] bool goes_around(WorkerId peer) const;
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }

 private:
  struct Way {
    LinkWay choice;
    std::string detour;
  };
  /// THROWS: SystemError when files or sockets run out; the next look continues from there.
  void look_at(WorkerId peer, Way& way, TimePoint now);
  void tell_taken(WorkerId peer, bool around, const LinkSigns& signs, TimePoint now) const;
  [[nodiscard]] const std::string& direct(WorkerId peer) const {
    return endpoints_[static_cast<std::size_t>(peer.value())];
  }

  const MemberOptions& options_;
  LinkEngine& engine_;
  ZmqSockets& sockets_;
  const std::function<void(const LinkEvent&)> event_;
  std::vector<std::string> endpoints_;
  std::map<int, Way> ways_;  // by peer, if it has a detour
  TimePoint next_look_{};
};

}  // namespace isthmus
