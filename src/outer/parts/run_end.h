// SPDX-License-Identifier: Apache-2.0
// The end of a run of a given length, from its schedule alone: the windows that the closing round
// carries, and the steps that no round carries. Commands report it before a run begins. Pure
// functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

/// A fragment's last steps, which no applied round of the schedule covers.
struct LastWindow {
  FragmentId fragment;
  std::int64_t steps = 0;
};

struct RunEnd {
  std::int64_t fragments = 0;
  std::int64_t sent = 0;              // number of rounds of the schedule
  std::int64_t rounds = 0;            // number of these that are applied
  std::vector<LastWindow> closing;    // sent by the closing round
  std::vector<LastWindow> uncarried;  // in no round: neither evaluated nor exported
  /// Steps of the last round sent whose mean is dropped although each worker has applied its own
  /// part (eager without "full"): with M workers 1/M of them is evaluated and exported.
  std::int64_t own_part_only = 0;
};

/// `fragments`: the number that make_fragments gives. `steps` = 0: nothing is sent. THROWS:
/// ConfigError as make_outer_strategy, and for an unknown method.
[[nodiscard]] RunEnd run_end(std::string_view method, const OuterOptions& options,
                             std::int64_t fragments, std::int64_t steps);

/// The largest number of steps among the windows; 0: there are none.
[[nodiscard]] std::int64_t longest(const std::vector<LastWindow>& windows);

}  // namespace isthmus::outer
