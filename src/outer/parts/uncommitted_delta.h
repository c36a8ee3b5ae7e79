// SPDX-License-Identifier: Apache-2.0
// Training that is in no round yet when a worker loses the other workers; the worker carries it
// along when it rejoins (OuterOptions::carry). At the rejoin the worker loads another worker's
// state and sets local := anchor_new + (local_old - anchor_old). Its next outer gradients hold the
// work, and their weights include its tokens. With SGD(1) they are what they would have been if the
// same work had been done that many rounds later. One thread.
//
// Only work that is certainly in no anchor counts: a fragment whose last round was in flight or has
// failed is left out, since this worker does not know whether that round was committed. Residuals
// of error feedback are lost. Steps that the worker takes alone afterwards are in no anchor: see
// offline_delta.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

struct UncommittedDelta {
  struct Part {
    std::vector<float> beyond;  // local - anchor; empty: nothing may be contributed
    std::int64_t tokens = 0;    // on which `beyond` was trained
    std::int64_t steps = 0;
    std::int64_t lost_tokens = 0;  // tokens of the fragment's training that is in no `beyond`; in
                                   // addition to `tokens`

    /// Moves the part's work to lost_tokens.
    void lose() {
      *this = {.beyond = {}, .tokens = 0, .steps = 0, .lost_tokens = lost_tokens + tokens};
    }
  };
  StepIndex step;                 // after which the work was taken
  StepIndex trained;              // last step of the work: `step`, or the step whose round failed
  std::vector<Part> parts;        // by fragment
  std::int64_t alone_steps = 0;   // of the last steps, the number taken alone
  std::int64_t alone_tokens = 0;  // tokens of these steps

  /// Tokens that may be contributed: the largest number of any fragment.
  [[nodiscard]] std::int64_t tokens() const {
    return most([](const Part& part) { return part.tokens; });
  }
  /// Lost tokens; all_tokens: lost tokens if every part is dropped. Each the largest number of any
  /// fragment.
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
  /// Called after a step, or after a step that has thrown PeerError. Parts are empty unless
  /// LostContribution is kCarry.
  [[nodiscard]] virtual UncommittedDelta uncommitted_delta() const = 0;
  /// The fragments of the work's parts, in order.
  [[nodiscard]] virtual std::span<const Fragment> fragments() const = 0;
  /// True if LostContribution is kCarry; otherwise nothing is carried along.
  [[nodiscard]] virtual bool carries() const = 0;
  struct Kept {
    std::int64_t tokens = 0;
    std::int64_t lost_tokens = 0;
  };
  /// Adds `work` to the local values, after forget_own_work. A fragment with a round in flight
  /// cannot take its part, since the local values will be merged with that round's result. RETURNS:
  /// tokens carried and tokens lost, each the largest number of any fragment. REQUIRES: work of the
  /// same configuration.
  [[nodiscard]] virtual Kept carry(const UncommittedDelta& work) = 0;
};

}  // namespace isthmus::outer
