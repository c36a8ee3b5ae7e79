// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms, as `tokenizers` computes them (the tables of text/unicode.h). Pure.
#pragma once

#include <string>
#include <string_view>

namespace isthmus {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` in the normal form. REQUIRES: UTF-8.
[[nodiscard]] std::string normalized(std::string_view text, NormalForm form);

}  // namespace isthmus
