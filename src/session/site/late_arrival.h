// SPDX-License-Identifier: Apache-2.0
// A site that comes to a run that goes on: it finds the sites that are in the run, and fetches the
// state of a worker from one of them. Part of SiteSession; the task that gathers calls it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/site/session_links.h"
#include "session/site/session_state.h"
#include "session/site/site_meeting.h"
#include "session/site/site_start.h"

namespace isthmus::app {

class LateArrival {
 public:
  LateArrival(SessionState& all, SessionLinks& links, SiteMeeting& meeting)
      : all_(all), links_(links), meeting_(meeting) {}

  /// Blocks until a worker's state is here. RETURNS: nothing where the hub has begun anew with this
  /// site before it had asked for a state. THROWS: as SiteSession::gather.
  [[nodiscard]] std::optional<SiteStart> come_late(
      TimePoint deadline, const std::function<void(const std::string&)>& say);

 private:
  /// Blocks until all sites that are in the run have answered this one. RETURNS: who they are;
  /// nothing where the hub has begun anew.
  [[nodiscard]] std::optional<std::vector<int>> find_all(TimePoint deadline);
  /// What site 0 has said to this newcomer, if that ends it. THROWS: ConfigError, PeerError.
  void check_turned_away();

  SessionState& all_;
  SessionLinks& links_;
  SiteMeeting& meeting_;
};

}  // namespace isthmus::app
