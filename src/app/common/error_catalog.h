// SPDX-License-Identifier: Apache-2.0
// The stable error codes and their remedies, for `explain`.
#pragma once

#include <span>
#include <string_view>

namespace isthmus::app {

struct ErrorEntry {
  std::string_view code;     // "E-RANGE"
  std::string_view meaning;  // what happened
  std::string_view remedy;   // what to do
};
[[nodiscard]] std::span<const ErrorEntry> error_catalog();

struct ExitEntry {
  int code;
  std::string_view meaning;
};
[[nodiscard]] std::span<const ExitEntry> exit_codes();

}  // namespace isthmus::app
