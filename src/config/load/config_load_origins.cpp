// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_origins.h"

#include <fmt/format.h>

namespace isthmus::config {
namespace {

template <typename Target>
void note_elements(Draft& draft, std::string_view section, std::span<const KeyRow<Target>> rows,
                   const std::vector<Target>& elements, const std::vector<GivenKeys>& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (const auto& row : rows) {
      const auto found = given[i].find(row.name);
      const bool absent = std::holds_alternative<std::monostate>(row.field.get(elements[i]));
      if (absent) {
        continue;
      }
      const std::string key(row.name.substr(section.size() + 1));
      draft.config.origins[fmt::format("{}[{}].{}", section, i, key)] = {
          found == given[i].end() ? "default" : draft.diagnostics.where(found->second.value)};
    }
  }
}

}  // namespace

void note_origins(Draft& draft) {
  Config& config = draft.config;
  const MethodInfo* info = draft.method();
  for (const auto& row : config_rows()) {
    const std::string name(row.name);
    const bool outer_key = name.starts_with("outer.") && name != "outer.method";
    const bool used_by_method =
        !outer_key || info == nullptr || info->takes(std::string_view(name).substr(6));
    const bool workers_from_sites = name == "run.workers" && !draft.sites.keys.empty();
    const bool absent = std::holds_alternative<std::monostate>(row.field.get(config));
    if (absent || !used_by_method || workers_from_sites ||
        (row.used != nullptr && !row.used(config))) {
      continue;
    }
    const auto found = draft.keys.find(name);
    const auto preset = draft.default_origins.find(name);
    config.origins[name] = {found != draft.keys.end() ? draft.diagnostics.where(found->second.value)
                            : preset != draft.default_origins.end() ? preset->second
                                                                    : "default"};
  }
  note_elements(draft, "site", site_rows(), config.sites, draft.sites.keys);
  note_elements(draft, "link", link_rows(), config.links, draft.links.keys);
  note_elements(draft, "fault", fault_rows(), config.faults, draft.faults.keys);
}

}  // namespace isthmus::config
