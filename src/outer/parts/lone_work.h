// SPDX-License-Identifier: Apache-2.0
// A worker's OwnWork while it trains on alone: no round is sent and no result applied, so what its
// local values gain from here on is in no anchor, whatever became of the rounds before. A fragment
// that had nothing to give, since its last round's end is unknown, has these steps to give.
// One thread.
#pragma once

#include <span>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "outer/parts/own_work.h"

namespace isthmus::outer {

class LoneWork {
 public:
  /// `work`: as CarriesWork::own_work of these `fragments` has given it; `inner`: its worker's
  /// trainer, whose parameters nobody has written since. Borrowed.
  LoneWork(OwnWork work, std::span<const Fragment> fragments, InnerLoop& inner);

  /// The next step that is to be taken.
  [[nodiscard]] StepIndex next() const { return StepIndex(work_.trained.value() + 1); }
  /// One inner step, `next`. THROWS: as InnerLoop::train_step and read_values, and for want of
  /// memory; nothing of the work is lost by that.
  [[nodiscard]] InnerStep step();
  /// `next` is not this worker's to take.
  void skip() { work_.trained = next(); }
  /// RETURNS: `work`, and the steps taken since. A fragment of which a value is not finite has none
  /// of it any more. Once. THROWS: as InnerLoop::read_values; nothing is taken then.
  [[nodiscard]] OwnWork take();
  /// In the place of `take`. RETURNS: the work, all of it lost.
  [[nodiscard]] OwnWork lose();

 private:
  /// Calls `change` with a value of the part and the local one, for all.
  template <typename Change>
  void for_each(std::size_t part, const Change& change);
  void begin();

  OwnWork work_;
  const std::vector<Fragment> fragments_;
  InnerLoop& inner_;
  bool begun_ = false;  // parts hold what `beyond` counts from, in its place
};

}  // namespace isthmus::outer
