// SPDX-License-Identifier: Apache-2.0
// How a run of a given length ends, by its schedule alone: which windows the closing round carries,
// and which steps no round carries. Commands say it before a run begins. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

/// A fragment's last steps, of which no round of the schedule has been applied.
struct LastWindow {
  FragmentId fragment;
  std::int64_t steps = 0;
};

struct RunEnd {
  std::int64_t fragments = 0;
  std::int64_t sent = 0;              // rounds of the schedule
  std::int64_t rounds = 0;            // of these, applied in the end
  std::vector<LastWindow> closing;    // sent by the closing round
  std::vector<LastWindow> uncarried;  // in no round: neither evaluated nor exported
  /// Steps of the last round sent whose mean is dropped while each worker has applied its own part
  /// (eager without "full"): with M workers 1/M of them is evaluated and exported.
  std::int64_t own_part_only = 0;
};

/// `fragments`: as many as make_fragments gives. 0 steps: a run that has nothing to send.
/// THROWS: ConfigError, as make_outer_strategy does, and for an unknown method.
[[nodiscard]] RunEnd run_end(std::string_view method, const OuterOptions& options,
                             std::int64_t fragments, std::int64_t steps);

/// The largest number of steps among the windows; 0: there are none.
[[nodiscard]] std::int64_t longest(const std::vector<LastWindow>& windows);

}  // namespace isthmus::outer
