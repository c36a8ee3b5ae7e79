// SPDX-License-Identifier: Apache-2.0
// What a worker has trained on and given to nobody when it loses the others, for it to take along
// when it comes back: a lost contribution (OuterOptions::carry) across a join. It takes over
// another worker's state there, and then local := anchor_new + (local_old - anchor_old), so its
// next outer gradients hold that work, weighted by its tokens too. With SGD(1) that is what they
// would have been had the work come so many rounds later. One thread.
//
// Only what surely is in no anchor: a fragment whose last round was under way or has failed is left
// out, since nobody here knows whether that was committed. Residuals of error feedback are lost.
// What is trained on after that, alone, is in no anchor either: see lone_work.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

struct OwnWork {
  struct Part {
    std::vector<float> beyond;  // local - anchor; empty: nothing that may be given
    std::int64_t tokens = 0;    // it was trained on
    std::int64_t steps = 0;
    std::int64_t lost_tokens = 0;  // of the fragment, that are in no `beyond`: beside `tokens`

    /// What it holds is lost.
    void lose() {
      *this = {.beyond = {}, .tokens = 0, .steps = 0, .lost_tokens = lost_tokens + tokens};
    }
  };
  StepIndex step;                 // after which it was taken
  StepIndex trained;              // the last one that it holds; `step`, or the one that failed
  std::vector<Part> parts;        // by fragment
  std::int64_t alone_steps = 0;   // of the last ones, those that were taken alone
  std::int64_t alone_tokens = 0;  // and what they were trained on

  /// That may be given: most of a fragment.
  [[nodiscard]] std::int64_t tokens() const {
    return most([](const Part& part) { return part.tokens; });
  }
  /// That are in no part, and those that are lost if all is: most of a fragment.
  [[nodiscard]] std::int64_t lost_tokens() const {
    return most([](const Part& part) { return part.lost_tokens; });
  }
  [[nodiscard]] std::int64_t all_tokens() const {
    return most([](const Part& part) { return part.tokens + part.lost_tokens; });
  }

 private:
  template <typename Count>
  [[nodiscard]] std::int64_t most(const Count& count) const {
    std::int64_t largest = 0;
    for (const Part& part : parts) largest = std::max(largest, count(part));
    return largest;
  }
};

class CarriesWork {
 public:
  virtual ~CarriesWork() = default;
  /// After a step, or after one has thrown PeerError. Empty parts where LostContribution is not
  /// kCarry.
  [[nodiscard]] virtual OwnWork own_work() const = 0;
  /// Of its parts, in order.
  [[nodiscard]] virtual std::span<const Fragment> fragments() const = 0;
  /// Whether LostContribution is kCarry: otherwise there is nothing to take along.
  [[nodiscard]] virtual bool carries() const = 0;
  struct Kept {
    std::int64_t tokens = 0;
    std::int64_t lost_tokens = 0;
  };
  /// After forget_own_work. A fragment with a round under way has no place for it, since that is
  /// merged with its local values. RETURNS: what was taken up, and lost: most of a fragment.
  /// REQUIRES: work of the same configuration.
  [[nodiscard]] virtual Kept carry(const OwnWork& work) = 0;
};

}  // namespace isthmus::outer
