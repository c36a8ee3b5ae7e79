// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the known word nearest to a misspelt one. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace isthmus {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment), letters compared without case.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, the first of equally near ones; absent if it is further away
/// than a third of the word's length (at least 1, at most 4).
[[nodiscard]] std::optional<std::string> closest(std::string_view word,
                                                 std::span<const std::string> candidates);

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string> words, std::string_view between = ", ");

}  // namespace isthmus
