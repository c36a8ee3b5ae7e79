// SPDX-License-Identifier: Apache-2.0
// Files beside a tokenizer.json, and its token that ends a text.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/storage.h"
#include "text/tokenizer.h"

namespace isthmus {

/// `path`, or the tokenizer.json in it if it is a folder.
[[nodiscard]] std::filesystem::path tokenizer_file(const Storage& storage,
                                                   const std::filesystem::path& path);

/// The token that ends a text: `wanted`, or that of tokenizer_config.json beside the tokenizer, or
/// a token with a usual name. THROWS: ConfigError when there is none.
[[nodiscard]] std::string end_of_text(const Storage& storage, const std::filesystem::path& path,
                                      const Tokenizer& tokenizer, const std::string& wanted);

}  // namespace isthmus
