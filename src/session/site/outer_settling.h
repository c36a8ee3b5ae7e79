// SPDX-License-Identifier: Apache-2.0
// The comparison of digests of outer states by a site's board. Sites compare them at their start,
// at a join, and at each common checkpoint. At a checkpoint all sites wait for the digests of the
// others, which arrive with the lines up to that step, so a difference is settled before any site
// writes the checkpoint. Part of SiteStepCoordinator; the worker calls it.
#pragma once

#include <functional>
#include <string>

#include "core/base/hash.h"
#include "session/run/divergence_rule.h"
#include "session/site/site_step_state.h"

namespace isthmus::app {

class OuterSettling {
 public:
  explicit OuterSettling(SiteStepState& all) : all_(all) {}

  /// This site's outer state after step t; `tensors`: as SiteStepCoordinator::tell_outer. Any task.
  void tell(StepIndex t, const Digest128& digest, const std::string& tensors);
  /// As Board::outer_agrees, once this site has told its digest.
  [[nodiscard]] bool agrees(StepIndex t);
  /// As Board::settle_outer.
  void settle(StepIndex t, const OuterReplay& replay);

 private:
  /// Blocks until `ready`, under the lock. THROWS: as explain; PeerError at the timeout.
  void await(StepIndex t, const std::function<bool()>& ready);

  SiteStepState& all_;
};

}  // namespace isthmus::app
