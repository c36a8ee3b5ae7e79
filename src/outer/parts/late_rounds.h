// SPDX-License-Identifier: Apache-2.0
// What a caller has to know of methods whose rounds may slip (OuterOptions::late): where workers
// must have the same anchors after the same step, at an evaluation, a checkpoint, whatever compares
// anchors, nothing may be late. Nor in a checkpoint from which several workers go on: all of them
// begin the rounds it holds again, so they must be the same ones. One thread.
#pragma once

#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

class LateRounds {
 public:
  virtual ~LateRounds() = default;
  /// Between two steps: waits for the rounds that were due by the last one and are not applied yet,
  /// and applies them, oldest first. RETURNS: their reports. THROWS: PeerError when one fails.
  [[nodiscard]] virtual std::vector<RoundReport> apply_late() = 0;
};

/// Of any method; nothing where none can be late.
[[nodiscard]] inline std::vector<RoundReport> apply_late(OuterStrategy& strategy) {
  auto* const slips = dynamic_cast<LateRounds*>(&strategy);
  return slips != nullptr ? slips->apply_late() : std::vector<RoundReport>{};
}

}  // namespace isthmus::outer
