// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "session/run/config_difference.h"

namespace isthmus::app {

const Config* before_changes(const RunChanges& changes, const std::string& digest) {
  const auto found = std::ranges::find_if(
      changes.before, [&](const Config& each) { return config_digest(each) == digest; });
  return found == changes.before.end() ? nullptr : &*found;
}

std::vector<std::string> changes_text(const Config& from, const Config& to,
                                      const std::vector<std::string>& keys) {
  std::vector<std::string> lines;
  for (const ConfigDifference& each : differing_keys(resolved_toml(from), resolved_toml(to))) {
    if (std::ranges::find(keys, each.key) == keys.end()) continue;
    lines.push_back(fmt::format("{} = {} ({} before)", each.key,
                                each.here.empty() ? "absent" : each.here,
                                each.there.empty() ? "absent" : each.there));
  }
  return lines;
}

}  // namespace isthmus::app
