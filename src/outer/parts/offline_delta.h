// SPDX-License-Identifier: Apache-2.0
// A worker's UncommittedDelta while it trains alone: no round is sent and no result applied, so all
// changes of its local values from here on are in no anchor, whatever the end of earlier rounds. A
// fragment without work to contribute, since the end of its last round is unknown, contributes
// these steps. One thread.
#pragma once

#include <span>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "outer/parts/uncommitted_delta.h"

namespace isthmus::outer {

class OfflineDelta {
 public:
  /// `work`: the result of CarriesWork::own_work for these `fragments`; `inner`: the worker's loop,
  /// whose parameters have not been written since. Borrowed.
  OfflineDelta(UncommittedDelta work, std::span<const Fragment> fragments, InnerLoop& inner);

  /// The next step to be taken.
  [[nodiscard]] StepIndex next() const { return StepIndex(work_.trained.value() + 1); }
  /// Takes the inner step next(). THROWS: as InnerLoop::train_step and read_values, and for lack of
  /// memory; the work is not lost then.
  [[nodiscard]] InnerStep step();
  /// Skips step next(), which this worker does not take.
  void skip() { work_.trained = next(); }
  /// RETURNS: the initial work and the steps taken since. A fragment with a value that is not
  /// finite loses all its work. Called once. THROWS: as InnerLoop::read_values; nothing is taken
  /// then.
  [[nodiscard]] UncommittedDelta take();
  /// Called in place of `take`. RETURNS: the work, with all of it lost.
  [[nodiscard]] UncommittedDelta lose();

 private:
  /// Calls `change` with each value of the part and the local value.
  template <typename Change>
  void for_each(std::size_t part, const Change& change);
  void begin();

  UncommittedDelta work_;
  const std::vector<Fragment> fragments_;
  InnerLoop& inner_;
  bool begun_ = false;  // true: parts hold the values from which `beyond` is measured
};

}  // namespace isthmus::outer
