// SPDX-License-Identifier: Apache-2.0
// The trained model in manifest.json: shape, size and family, for readers of a run's folder.
#pragma once

#include <cstdint>
#include <string>

#include "isthmus/config.h"

namespace isthmus::app {

/// The language model that `config` trains, as the object "model" of manifest.json.
[[nodiscard]] std::string model_json(const Config& config, std::int64_t parameters);

}  // namespace isthmus::app
