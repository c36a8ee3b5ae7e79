// SPDX-License-Identifier: Apache-2.0
// A site that joins a running run: it finds the sites of the run, and fetches a worker's state from
// a donor. Part of SiteSession; the task that gathers calls it.
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

  /// Blocks until a worker's state is here. RETURNS: nothing when the hub began anew with this site
  /// before the site had asked for a state. THROWS: as SiteSession::gather.
  [[nodiscard]] std::optional<SiteStart> come_late(
      TimePoint deadline, const std::function<void(const std::string&)>& say);

 private:
  /// Blocks until all sites of the run have answered this one. RETURNS: these sites; nothing when
  /// the hub began anew.
  [[nodiscard]] std::optional<std::vector<int>> find_all(TimePoint deadline);
  /// Checks whether the donor has refused this joiner. THROWS: ConfigError, PeerError.
  void check_turned_away();

  SessionState& all_;
  SessionLinks& links_;
  SiteMeeting& meeting_;
};

}  // namespace isthmus::app
