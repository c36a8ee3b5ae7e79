// SPDX-License-Identifier: Apache-2.0
// Agreements of a session's sites on steps, coordinated by their hub: steps to stop after, to save
// a checkpoint after, to join or to leave after. Agreements are logged before any site is told.
// Part of HubRun.
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
  /// Continues from the log.
  explicit HubSteps(HubState& all);

  /// A session begins: earlier wishes and questions are void.
  void begin_anew();
  /// A note of a connected site of the run.
  void receive(WorkerId from, const Note& note);
  void wish(WorkerId from, const WishNote& note);
  /// The site has connected to this process: it is sent the agreements and the open questions.
  void welcome_back(WorkerId site);
  /// A site is lost: it does not join.
  void lost(WorkerId site);
  /// The membership has changed.
  void changed(const Epoch& epoch);

 private:
  /// Runs `step(outbox)`, logs new agreements, then sends.
  void drive(const std::function<void(NotesOut&)>& step);
  /// The first waiting joiner joins after this step.
  void admit(StepIndex after);
  /// Asks for a step for the next waiting joiner.
  void ask_for_joiner();

  HubState& all_;
  std::optional<SiteAgreement> agreement_;  // of the session
  std::deque<WishNote> joiners_;            // the first one's step is being agreed on
};

}  // namespace isthmus::app
