// SPDX-License-Identifier: Apache-2.0
// UTF-8, checked, and JSON strings made of it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace isthmus {

/// Length of the well-formed UTF-8 sequence at the start of `text`, or 0 if it is not well-formed,
/// as are overlong forms, surrogates and values above U+10FFFF. REQUIRES: text is not empty.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

/// Offset of the first byte that is not UTF-8, or npos.
[[nodiscard]] std::size_t invalid_utf8(std::string_view text);

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_quote(std::string_view text);
/// The same, appended to `out`.
void append_json_quoted(std::string& out, std::string_view text);

}  // namespace isthmus
