// SPDX-License-Identifier: Apache-2.0
// What becomes of a run's last steps, said before the run begins: whether there is a round at all,
// which steps no round carries, and what the closing round carries. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "outer/parts/run_end.h"

namespace isthmus::app {

/// THROWS: ConfigError, as outer::run_end.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config, const ModelLayout& layout);
/// The same; the layout is that of the configuration's model.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config);

/// The steps of the run that reach the outer parameters whole, of the fragment that has fewest.
[[nodiscard]] std::int64_t carried_steps(const Config& config, const outer::RunEnd& end);

/// Each a sentence with its remedy; empty where regular rounds and a closing round after them
/// carry every step.
[[nodiscard]] std::vector<std::string> warnings_about_end(const Config& config,
                                                          const outer::RunEnd& end);
/// "the last 4 of 9 steps"; empty where the run has no closing round.
[[nodiscard]] std::string closing_window_text(const Config& config, const outer::RunEnd& end);

}  // namespace isthmus::app
