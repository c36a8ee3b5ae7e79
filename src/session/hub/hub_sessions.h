// SPDX-License-Identifier: Apache-2.0
// How sites come into the session of a hub: a session begins once all who are awaited have greeted;
// a site that greets later joins the run under way; a site of the run finds the hub's next process.
// Part of HubRun.
#pragma once

#include "session/hub/hub_state.h"
#include "session/hub/hub_steps.h"

namespace isthmus::app {

class HubSessions {
 public:
  HubSessions(HubState& all, HubSteps& steps) : all_(all), steps_(steps) {}

  /// A site's process that is not in the run says what it brings.
  void hear(WorkerId from, const HelloNote& note);
  /// A site of a session has found this process. THROWS: ConfigError where the log is not of that
  /// session, or is an older copy.
  void hear(WorkerId from, const StandingNote& note);
  /// Begins a session if none has begun in this life and all have come. THROWS: ConfigError where
  /// the sites have no start in common.
  void begin_if_all_have_come();
  /// Whether a start waits for the site: it is let in, or invited.
  [[nodiscard]] bool is_awaited(WorkerId site) const;

 private:
  void begin();
  void answer_newcomer(WorkerId site);
  [[nodiscard]] bool all_have_come() const;

  HubState& all_;
  HubSteps& steps_;
};

}  // namespace isthmus::app
