// SPDX-License-Identifier: Apache-2.0
// Files beside a tokenizer.json, and which of its tokens ends a text.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/storage.h"
#include "text/tokenizer.h"

namespace isthmus {

/// `path`, or the tokenizer.json in it where it is a folder.
[[nodiscard]] std::filesystem::path tokenizer_file(const Storage& storage,
                                                   const std::filesystem::path& path);

/// The token that ends a text: `wanted`, or what tokenizer_config.json beside the tokenizer says,
/// or a token of a usual name. THROWS: ConfigError where there is none.
[[nodiscard]] std::string end_of_text(const Storage& storage, const std::filesystem::path& path,
                                      const Tokenizer& tokenizer, const std::string& wanted);

}  // namespace isthmus
