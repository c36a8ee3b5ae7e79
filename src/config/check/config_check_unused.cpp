// SPDX-License-Identifier: Apache-2.0
// Keys that are given and have no effect under the other settings or the chosen method.
#include <fmt/format.h>

#include "config/check/config_check.h"
#include "core/base/suggest.h"

namespace isthmus::config {

void validate_unused(CheckContext& check) {
  for (const auto& row : config_rows()) {
    const auto found = check.keys().find(row.name);
    if (found != check.keys().end() && row.used != nullptr && !row.used(check.config)) {
      check.refuse_at("E-KEY-UNUSED", found->second.key,
                      fmt::format("'{}' is not used here", row.name),
                      fmt::format("it needs {}; remove it", row.used_by));
    }
  }
  const MethodInfo* info = check.method;
  if (info == nullptr) {
    return;
  }
  for (const auto& [name, where] : check.keys()) {
    if (!name.starts_with("outer.") || name == "outer.method" || name == "outer.placement") {
      continue;
    }
    if (!info->takes(std::string_view(name).substr(6))) {
      const bool commits = name == "outer.commit" && info->commits_rounds;
      check.refuse_at(
          "E-KEY-UNUSED", where.key,
          fmt::format("'{}' is not used by method '{}'{}", name, info->name,
                      commits ? ", whose rounds commit one by one" : ""),
          fmt::format("remove it   (keys of method '{}': {})", info->name, join(info->keys)));
    }
  }
}

}  // namespace isthmus::config
