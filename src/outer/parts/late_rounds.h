// SPDX-License-Identifier: Apache-2.0
// Interface of methods whose rounds may be late (OuterOptions::late). No round may be late wherever
// workers must hold the same anchors after the same step: at an evaluation, at a checkpoint, at a
// comparison of anchors. Nor may a round be late in a checkpoint from which several workers
// continue: all of them begin its rounds again, so these must be the same rounds. One thread.
#pragma once

#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

class LateRounds {
 public:
  virtual ~LateRounds() = default;
  /// Called between two steps: waits for the rounds that were due by the last step and are not
  /// applied yet, and applies them, oldest first. RETURNS: their reports. THROWS: PeerError when a
  /// round fails.
  [[nodiscard]] virtual std::vector<RoundReport> apply_late() = 0;
};

/// apply_late of any method; empty for a method without late rounds.
[[nodiscard]] inline std::vector<RoundReport> apply_late(OuterStrategy& strategy) {
  auto* const slips = dynamic_cast<LateRounds*>(&strategy);
  return slips != nullptr ? slips->apply_late() : std::vector<RoundReport>{};
}

}  // namespace isthmus::outer
