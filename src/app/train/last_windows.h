// SPDX-License-Identifier: Apache-2.0
// The outcome of the last steps of a built-in trainer's run (session/checks/last_windows.h).
#pragma once

#include <string>

#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "session/checks/last_windows.h"

namespace isthmus::app {

/// THROWS: ConfigError, as outer::run_end.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config, const ModelLayout& layout);
/// The same, with the layout of the configuration's model.
[[nodiscard]] outer::RunEnd run_end_of(const Config& config);

/// As short_of_warmup, of inner.warmup where the file says it.
[[nodiscard]] std::string short_of_inner_warmup(const Config& config);

}  // namespace isthmus::app
