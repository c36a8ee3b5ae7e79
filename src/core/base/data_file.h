// SPDX-License-Identifier: Apache-2.0
// Compares two readings of one data file (isthmus/data_file.h).
#pragma once

#include <string_view>

#include "isthmus/data_file.h"

namespace isthmus {

/// Suffix of the `reading` of a file that a run reads by the rules of the first versions, where
/// today's differ.
inline constexpr std::string_view kAsItLies = ", as it lies";

/// True if both read equal bytes as equal ids, as far as is known.
[[nodiscard]] inline bool is_same_reading(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return true;
  for (std::string_view* each : {&a, &b}) {
    if (each->ends_with(kAsItLies)) each->remove_suffix(kAsItLies.size());
  }
  return a == b;
}

}  // namespace isthmus
