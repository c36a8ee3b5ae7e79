// SPDX-License-Identifier: Apache-2.0
// A worker's outer state, worked out again from what is on record: the last state that all had
// alike, from this worker's own checkpoint, and the results that it has retained since. Where the
// outer states of sites differ every site does so (session/run/outer_verdict.h), in the place of
// its training: it takes memory for copies of the state (docs/guarantees/healing.md), and no second
// model. The worker's thread, between two steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/hash.h"
#include "isthmus/outer.h"
#include "outer/parts/idle_inner_loop.h"
#include "session/run/outer_verdict.h"
#include "session/run/worker_state.h"
#include "transport/exchange/catch_up/retained_results.h"

namespace isthmus::app {

class OuterHealing {
 public:
  struct Parts {
    outer::IdleInnerLoop& inner;
    RetainedResults& results;
    RetainingExchange& exchange;  // the methods'
    std::function<std::unique_ptr<OuterStrategy>()> make;
    /// Makes the inner loop and a method what they were after the step, in the state that `agreed`
    /// was told of. THROWS: Error where that cannot be had.
    std::function<std::unique_ptr<OuterStrategy>(StepIndex)> restore;
    StepIndex last_step;  // of the run: its method has finished
  };
  explicit OuterHealing(Parts parts) : parts_(std::move(parts)) {}

  /// All have this digest after step t: what comes later counts from here, and what was retained
  /// goes. By the next replay `Parts::restore` can bring that state back.
  void agreed(StepIndex t, const Digest128& digest);
  /// `strategy`, after step t, holds `held`. If its replay comes to that, or there is none, all is
  /// as it was; else the replay's state is left in its place, as of a worker that joins here: it
  /// has no work of its own. RETURNS: what is to be told. THROWS: Error where what was cannot be
  /// had back either.
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
