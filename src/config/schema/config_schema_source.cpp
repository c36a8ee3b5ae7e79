// SPDX-License-Identifier: Apache-2.0
#include "config/schema/config_schema_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

namespace isthmus::config {

std::string_view type_name(const SourceValue& value) {
  constexpr std::string_view kNames[] = {"true or false", "an integer", "a number", "text",
                                         "a date",        "an array",   "a table"};
  return kNames[value.data.index()];
}

std::string shown(const SourceValue& value) {
  constexpr std::size_t kLongest = 60;
  return std::visit(
      [](const auto& data) -> std::string {
        using Data = std::remove_cvref_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::string>) {
          const bool cut = data.size() > kLongest;
          std::string text = data.substr(0, kLongest);
          std::replace_if(
              text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
          return fmt::format("\"{}{}\"", text, cut ? "..." : "");
        } else if constexpr (std::is_same_v<Data, SourceDate>) {
          return "a date";
        } else if constexpr (std::is_same_v<Data, SourceArray>) {
          return data.empty() ? "[]" : "[...]";
        } else if constexpr (std::is_same_v<Data, SourceTable>) {
          return "{...}";
        } else {
          return fmt::format("{}", data);
        }
      },
      value.data);
}

}  // namespace isthmus::config
