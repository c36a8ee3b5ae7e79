// SPDX-License-Identifier: Apache-2.0
// A text without the characters at its ends that say nothing. Pure.
#pragma once

#include <string_view>

namespace isthmus {

/// `text` without those of `characters` at its beginning and end.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text,
                                                 std::string_view characters) {
  const std::size_t first = text.find_first_not_of(characters);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(characters) - first + 1);
}

}  // namespace isthmus
