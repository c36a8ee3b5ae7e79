// SPDX-License-Identifier: Apache-2.0
// Healing of a worker's outer state: computed again from records, namely the last state that all
// workers had alike, from this worker's own checkpoint, and the results that the worker has
// retained since. If the outer states of sites differ, every site does so
// (session/run/divergence_rule.h), in place of training: it takes memory for copies of the state
// (docs/guarantees/healing.md), and no second model. The worker's thread, between two steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/hash.h"
#include "isthmus/outer.h"
#include "outer/parts/idle_inner_loop.h"
#include "session/run/divergence_rule.h"
#include "session/run/worker_state.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

class OuterHealing {
 public:
  struct Parts {
    outer::IdleInnerLoop& inner;
    RetainedResults& results;
    RetainingExchange& exchange;  // the one used by the methods
    std::function<std::unique_ptr<OuterStrategy>()> make;
    /// Restores the inner loop and a method to their state after the step given to `agreed`.
    /// THROWS: Error when that is impossible.
    std::function<std::unique_ptr<OuterStrategy>(StepIndex)> restore;
    StepIndex last_step;  // the run's last step, after which its method finishes
  };
  explicit OuterHealing(Parts parts) : parts_(std::move(parts)) {}

  /// All workers have this digest after step t: replays start here, and earlier retained results
  /// are dropped. `Parts::restore` must be able to restore that state by the next replay.
  void agreed(StepIndex t, const Digest128& digest);
  /// Replays the committed results. `strategy`, after step t, has the digest `held`. If the replay
  /// gives `held` too, or fails, the old state is restored. Otherwise the replayed state stays, as
  /// for a worker that joins here: it has no work of its own. RETURNS: the replay's digest, or why
  /// there is none. THROWS: Error when the old state cannot be restored.
  [[nodiscard]] OuterReplay replay(std::unique_ptr<OuterStrategy>& strategy, const Digest128& held);

 private:
  struct Agreed {
    StepIndex step;
    Digest128 digest;
  };
  [[nodiscard]] Digest128 digest_of(const OuterStrategy& strategy) const;
  /// THROWS: Error.
  void play(std::unique_ptr<OuterStrategy>& strategy, StepIndex t);

  const Parts parts_;
  std::optional<Agreed> agreed_;
};

}  // namespace isthmus::app
