// SPDX-License-Identifier: Apache-2.0
// The rows of the schema as `explain` and the documentation show them.
#include <fmt/format.h>

#include <memory>

#include "config/schema/config_schema.h"
#include "config/schema/config_schema_values.h"

namespace isthmus {

std::vector<KeyInfo> config_keys() {
  std::vector<KeyInfo> keys;
  const auto add = [&keys](const auto& rows, const auto& defaults) {
    for (const auto& row : rows) {
      std::string fallback = config::toml_text(row.field.get(defaults), row.type);
      if (fallback == "\"\"" || fallback == "[\"\", \"\"]" ||
          row.type == config::Type::kTokensUnit || row.type == config::Type::kRate ||
          row.name.starts_with("fault.")) {
        fallback.clear();  // must be given, or absent by default
      }
      keys.push_back(
          {std::string(row.name), config::type_text(row.type, row.choices), fallback,
           row.range.text(), std::string(row.text), std::string(row.used_by),
           fmt::format("{} = {}", row.name.substr(row.name.rfind('.') + 1), row.example)});
    }
  };
  const auto whole = std::make_unique<const Config>();  // on the stack GCC 12 warns of its strings
  add(config::config_rows(), *whole);
  add(config::site_rows(), SiteConfig{});
  add(config::link_rows(), LinkConfig{});
  add(config::fault_rows(), FaultConfig{});
  add(config::experiment_rows(), ExperimentSettings{});
  return keys;
}

}  // namespace isthmus
