// SPDX-License-Identifier: Apache-2.0
// The special tokens of a tokenizer by role, such as "bos_token", "eos_token", "unk_token", from
// tokenizer_config.json and special_tokens_map.json beside a tokenizer.json.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/storage.h"

namespace isthmus {

/// (role, token); roles that are null are left out. tokenizer_config.json takes precedence over
/// special_tokens_map.json. THROWS: SystemError for a file that is not JSON.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> special_tokens(
    const Storage& storage, const std::filesystem::path& folder);

/// The token of a role; empty if there is none.
[[nodiscard]] std::string special_token(const Storage& storage, const std::filesystem::path& folder,
                                        std::string_view role);

}  // namespace isthmus
