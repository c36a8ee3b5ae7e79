// SPDX-License-Identifier: Apache-2.0
// The steps that the sites of a session agree on, as their hub coordinates them: steps to stop
// after, to lay down a checkpoint after, to join or to leave after. What is agreed on is written to
// the log before any site is told. Part of HubRun.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "session/hub/hub_state.h"
#include "session/site/site_agreement.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class HubSteps {
 public:
  /// Goes on from what the log says.
  explicit HubSteps(HubState& all);

  /// A session begins: what was wished or asked before is of another start.
  void begin_anew();
  /// A note of a site that stands.
  void receive(WorkerId from, const Note& note);
  void wish(WorkerId from, const WishNote& note);
  /// The site has found this process: it is told what was agreed, and asked what is open.
  void welcome_back(WorkerId site);
  /// A site is lost: it does not join.
  void lost(WorkerId site);
  /// Who takes part has changed.
  void changed(const Epoch& epoch);

 private:
  /// Runs `step(outbox)`, writes down what was agreed on, then sends.
  void drive(const std::function<void(NotesOut&)>& step);
  /// The first in line joins after this step.
  void admit(StepIndex after);
  /// The next site in line for a step to join at.
  void ask_for_joiner();

  HubState& all_;
  std::optional<SiteAgreement> agreement_;  // of the session
  std::deque<WishNote> joiners_;            // the first is being agreed on
};

}  // namespace isthmus::app
