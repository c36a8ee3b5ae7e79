// SPDX-License-Identifier: Apache-2.0
// Handles news from the links for a site's board: notes of the other sites, joins and losses. Part
// of SiteStepCoordinator. Calls come one at a time: from the links' task, and, for news that was
// there first, from the task that connects the board.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/site/site_step_state.h"
#include "transport/wire/epoch.h"

namespace isthmus::app {

class SiteMembers {
 public:
  explicit SiteMembers(SiteStepState& all);

  /// Notes about steps wait until the sender and this site both take part. THROWS: PeerError for an
  /// invalid note, which is a step or an evaluation out of turn.
  void receive(WorkerId from, const Note& note);
  /// The links to `site` are lost. In an elastic run the loss takes effect with the epoch that
  /// excludes the site, and rounds wait for a lost hub; otherwise the run cannot continue.
  void lost(WorkerId site, const std::string& why);
  /// The membership has changed: a site joins, is lost, is to leave after a step, or has left. Of
  /// epochs before this site takes part only its own join has an effect.
  void epoch(const Epoch& epoch);

 private:
  void take(WorkerId from, const Note& note);
  void take_posts(WorkerId from, const PostsNote& note);
  void take_eval(WorkerId from, const EvalNote& note);
  /// `epoch.who` is lost.
  void leave(const Epoch& epoch);
  /// `epoch.who` leaves after step `epoch.after`.
  void take_leave(const Epoch& epoch);
  /// `epoch.who` has ended its last step.
  void part_with(const Epoch& epoch);
  void join(const Epoch& epoch);
  /// `site` takes part in the steps after `after`.
  void admit(WorkerId site, StepIndex after);

  SiteStepState& all_;
  // By site:
  std::vector<std::vector<Note>> early_;  // about steps, before that site and this one take part
  std::vector<std::optional<std::int64_t>> until_;  // it leaves, and posts up to this step
  std::vector<std::int64_t> told_;                  // the last step that the site has posted
  std::vector<std::int64_t> evaluated_;             // the step of its last posted evaluation
};

}  // namespace isthmus::app
