// SPDX-License-Identifier: Apache-2.0
// All that one worker's training depends on, by name: "local/" parameters, "inner/" what the inner
// loop keeps, "outer/" the method with its syncs in flight. For checkpoints, and for a worker that
// goes on from another's state. The worker's thread, between two steps.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/state/state_snapshot.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"

namespace isthmus::app {

/// `borrows`: the parameters, and all that lies in files, are not copied, and stay as they are
/// while the snapshot is in use.
[[nodiscard]] StateSnapshot worker_snapshot(InnerLoop& inner, const OuterStrategy& strategy,
                                            bool borrows);

/// The parameters; before the worker's method is made. THROWS: RunError as StateReader has it.
void restore_worker_parameters(StateReader& from, InnerLoop& inner);
/// The rest. The method's syncs in flight are begun again. THROWS: RunError, ConfigError when the
/// method or a setting is another one.
void restore_worker_state(StateReader& from, InnerLoop& inner, OuterStrategy& strategy);

/// A worker's state after some step, to go back to; in memory, as large as its checkpoint.
class KeptState {
 public:
  /// Between two steps; in the place of what was kept before.
  void keep(InnerLoop& inner, const OuterStrategy& strategy);
  /// The inner loop as it was. `make`: as the strategy was made. RETURNS: it, as it was. Nothing
  /// is kept then: that would be a second copy. REQUIRES: something is kept.
  [[nodiscard]] std::unique_ptr<OuterStrategy> restore(
      InnerLoop& inner, const std::function<std::unique_ptr<OuterStrategy>()>& make);

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace isthmus::app
