// SPDX-License-Identifier: Apache-2.0
// The complete training state of one worker, by name: "local/" parameters, "inner/" the inner loop,
// "outer/" the method with its syncs in flight. For checkpoints, and for a worker that continues
// from another's state. The worker's thread, between two steps.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/state/state_snapshot.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"

namespace isthmus::app {

/// `borrows`: parameters and arrays in files are not copied, and must not change while the snapshot
/// is in use.
[[nodiscard]] StateSnapshot worker_snapshot(InnerLoop& inner, const OuterStrategy& strategy,
                                            bool borrows);

/// Restores the parameters; call before the worker's method is made. THROWS: RunError as
/// StateReader does.
void restore_worker_parameters(StateReader& from, InnerLoop& inner);
/// Restores the rest. The method's syncs in flight begin again. THROWS: RunError; ConfigError when
/// the method or a setting differs.
void restore_worker_state(StateReader& from, InnerLoop& inner, OuterStrategy& strategy);

/// A worker's state after some step, to return to; in memory, as large as its checkpoint.
class KeptState {
 public:
  /// Call between two steps; replaces the state that was kept before.
  void keep(InnerLoop& inner, const OuterStrategy& strategy);
  /// Restores the inner loop. `make`: makes the strategy as before. RETURNS: the restored strategy.
  /// Keeps nothing afterwards, since that would be a second copy. REQUIRES: a state is kept.
  [[nodiscard]] std::unique_ptr<OuterStrategy> restore(
      InnerLoop& inner, const std::function<std::unique_ptr<OuterStrategy>()>& make);

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace isthmus::app
