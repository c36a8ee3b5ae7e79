// SPDX-License-Identifier: Apache-2.0
// Which endpoints a member dials: of each peer its own, or where that fails and there is one, a
// detour. Does with sockets and engine what LinkWay decides. Belongs to the task that owns both.
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
  /// Borrows all of them. `event`: is told when connections take another way.
  LinkDialling(const MemberOptions& options, LinkEngine& engine, ZmqSockets& sockets,
               std::function<void(const LinkEvent&)> event)
      : options_(options), engine_(engine), sockets_(sockets), event_(std::move(event)) {}

  /// As NetworkTransport::join; dials all. Call once.
  void begin(std::span<const std::string> endpoints, std::span<const std::string> detours);
  /// Anew, the way that was taken last.
  void dial(WorkerId peer);
  /// Looks at who answers, and may move connections. Call in every turn.
  void look(TimePoint now);
  /// When `look` has something to look at again; kNever where there are no detours.
  [[nodiscard]] TimePoint next_look() const { return ways_.empty() ? kNever : next_look_; }
  [[nodiscard]] bool goes_around(WorkerId peer) const;
  [[nodiscard]] const std::vector<std::string>& endpoints() const { return endpoints_; }

 private:
  struct Way {
    LinkWay choice;
    std::string detour;
  };
  /// THROWS: SystemError for want of a file or socket; the next look goes on from there.
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
  std::map<int, Way> ways_;  // by peer, where there are two
  TimePoint next_look_{};
};

}  // namespace isthmus
