// SPDX-License-Identifier: Apache-2.0
// What becomes of a run's last steps, said before the run begins: whether there is a round at all,
// which steps no round carries, and what the closing round carries. Of any trainer. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "outer/parts/run_end.h"

namespace isthmus::app {

/// `parameters`: what is trained; values are not looked at. THROWS: ConfigError, as make_fragments
/// and outer::run_end.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config, std::span<const Parameter> parameters);

/// The steps of the run that reach the outer parameters whole, of the fragment that has fewest.
[[nodiscard]] std::int64_t carried_steps(const Config& config, const outer::RunEnd& end);

/// Each a sentence with its remedy; empty where regular rounds and a closing round after them
/// carry every step.
[[nodiscard]] std::vector<std::string> warnings_about_end(const Config& config,
                                                          const outer::RunEnd& end);
/// "the last 4 of 9 steps"; empty where the run has no closing round.
[[nodiscard]] std::string closing_window_text(const Config& config, const outer::RunEnd& end);

}  // namespace isthmus::app
