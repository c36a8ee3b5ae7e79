// SPDX-License-Identifier: Apache-2.0
// The outcome of a run's last steps, reported before the run begins: whether there is a round at
// all, which steps no round covers, and which steps the closing round covers. For any trainer.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "outer/parts/run_end.h"

namespace isthmus::app {

/// `parameters`: of the trainer; their values are not read. THROWS: ConfigError, as make_fragments
/// and outer::run_end.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config, std::span<const Parameter> parameters);

/// The number of steps that reach the outer parameters completely, for the fragment with the
/// fewest.
[[nodiscard]] std::int64_t carried_steps(const Config& config, const outer::RunEnd& end);

/// Sentences, each with its remedy; empty if regular rounds and a closing round cover every step,
/// and the warm-ups of the outer rates end within the run.
[[nodiscard]] std::vector<std::string> warnings_about_end(const Config& config,
                                                          const outer::RunEnd& end);
/// A sentence if the warm-up of `key`, of `warmup` steps, is longer than a run of `total`; else
/// empty. peak: the key whose value is never reached.
[[nodiscard]] std::string short_of_warmup(const char* key, std::int64_t warmup, std::int64_t total,
                                          const char* peak);
/// "the last 4 of 9 steps"; empty if the run has no closing round.
[[nodiscard]] std::string closing_window_text(const Config& config, const outer::RunEnd& end);

}  // namespace isthmus::app
