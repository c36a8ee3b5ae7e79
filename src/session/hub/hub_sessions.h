// SPDX-License-Identifier: Apache-2.0
// The ways into a hub's session: a session begins once all awaited sites have greeted; a site that
// greets later joins the running run; a site of the run reconnects to the hub's next process. Part
// of HubRun.
#pragma once

#include "session/hub/hub_state.h"
#include "session/hub/hub_steps.h"

namespace isthmus::app {

class HubSessions {
 public:
  HubSessions(HubState& all, HubSteps& steps) : all_(all), steps_(steps) {}

  /// Greeting of a site's process that is not in the run. A site whose configuration differs is
  /// turned away, which is no error of the hub; the run begins or takes the site in otherwise.
  /// THROWS: as begin_if_all_have_come.
  void hear(WorkerId from, const HelloNote& note);
  /// A site of a session has connected to this process. THROWS: ConfigError when the log is of
  /// another session, or is an older copy.
  void hear(WorkerId from, const StandingNote& note);
  /// Begins a session if none has begun in this life and all awaited sites have greeted. THROWS:
  /// ConfigError when the sites have no common start.
  void begin_if_all_have_come();
  /// Whether a start waits for the site: its key is admitted, or it is invited.
  [[nodiscard]] bool is_awaited(WorkerId site) const;

 private:
  void begin();
  void answer_newcomer(WorkerId site);
  [[nodiscard]] bool all_have_come() const;

  HubState& all_;
  HubSteps& steps_;
};

}  // namespace isthmus::app
