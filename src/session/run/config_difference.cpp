// SPDX-License-Identifier: Apache-2.0
#include "session/run/config_difference.h"

#include <fmt/format.h>

#include <map>

#include "core/base/trimmed.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kBlanks = " \t\r";

/// Values end where their origin begins: "  # file:line:col".
std::string_view without_origin(std::string_view value) {
  return trimmed(value.substr(0, value.rfind("  # ")), kBlanks);
}

std::map<std::string, std::string> values_of(std::string_view text) {
  std::map<std::string, std::string> values;
  std::string section;
  int entry = 0;  // numbers [[site]] and [[link]], which repeat
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line =
        trimmed(text.substr(0, end + 1 - (text[end] == '\n' ? 1 : 0)), kBlanks);
    text.remove_prefix(end + 1);
    if (line.starts_with("[[")) {
      section = fmt::format("{}[{}]", line.substr(2, line.find(']') - 2), entry++);
    } else if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1);
    } else if (const std::size_t equals = line.find(" = ");
               !line.starts_with('#') && equals != std::string_view::npos) {
      values[fmt::format("{}.{}", section, line.substr(0, equals))] =
          without_origin(line.substr(equals + 3));
    }
  }
  return values;
}

}  // namespace

std::vector<ConfigDifference> differing_keys(std::string_view there, std::string_view here) {
  const std::map<std::string, std::string> old_values = values_of(there);
  const std::map<std::string, std::string> new_values = values_of(here);
  std::vector<ConfigDifference> differences;
  for (const auto& [key, value] : new_values) {
    const auto old_value = old_values.find(key);
    const std::string before = old_value == old_values.end() ? "" : old_value->second;
    if (before != value) differences.push_back({key, before, value});
  }
  for (const auto& [key, value] : old_values) {
    if (!new_values.contains(key)) differences.push_back({key, value, ""});
  }
  return differences;
}

std::vector<std::string> config_differences(std::string_view there, std::string_view here) {
  std::vector<std::string> lines;
  for (const ConfigDifference& each : differing_keys(there, here)) {
    lines.push_back(fmt::format("{} = {} there, {} here", each.key,
                                each.there.empty() ? "absent" : each.there,
                                each.here.empty() ? "absent" : each.here));
  }
  return lines;
}

}  // namespace isthmus::app
