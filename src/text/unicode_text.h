// SPDX-License-Identifier: Apache-2.0
// unicode.txt as it travels with the program.
#pragma once

#include <string_view>

namespace isthmus {

/// What scripts/unicode-tables wrote: one `NAME word word ...` a line, `#` opens a comment.
extern const std::string_view kUnicodeText;

}  // namespace isthmus
