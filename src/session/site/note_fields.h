// SPDX-License-Identifier: Apache-2.0
// Fields of notes between sites (session/site/site_notes.h) as JSON values: a step's post, bytes,
// bits. Pure; any thread. Readers THROW std::exception for an invalid value.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/json_input.h"
#include "record/run_events.h"

namespace isthmus::app {

[[nodiscard]] nlohmann::json of_post(const StepPost& p);
[[nodiscard]] StepPost post_of(const nlohmann::json& p);

[[nodiscard]] nlohmann::json of_bytes(const std::vector<std::byte>& bytes);
[[nodiscard]] std::vector<std::byte> bytes_of(const nlohmann::json& value);

/// One bit an entry, the first in the lowest bit of its byte.
[[nodiscard]] nlohmann::json of_bits(const std::vector<bool>& bits);
[[nodiscard]] std::vector<bool> bits_of(const nlohmann::json& value);

}  // namespace isthmus::app
