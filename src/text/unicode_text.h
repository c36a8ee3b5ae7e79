// SPDX-License-Identifier: Apache-2.0
// The text of unicode.txt, compiled into the program.
#pragma once

#include <string_view>

namespace isthmus {

/// Output of scripts/unicode-tables: one `NAME word word ...` a line, `#` starts a comment.
extern const std::string_view kUnicodeText;

}  // namespace isthmus
