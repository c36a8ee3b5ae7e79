// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_draft.h"

#include <fmt/format.h>

#include <utility>

#include "config/schema/config_schema_values.h"

namespace isthmus::config {

Draft::Draft(std::string_view text, const std::filesystem::path& name,
             const SchemaContext& schema_context)
    : schema(schema_context), diagnostics(text, name.string()) {
  config.file = name;
  config.text = text;
}

Place Draft::place(std::string_view name) const {
  const auto found = keys.find(name);
  return found == keys.end() ? Place{} : found->second.value;
}

std::string Draft::quoted(std::string_view name) const {
  const auto found = keys.find(name);
  if (found != keys.end()) {
    return fmt::format("'{} = {}'", name, found->second.shown);
  }
  const auto* row = find_row(config_rows(), name);
  return row == nullptr
             ? fmt::format("'{}'", name)
             : fmt::format("'{} = {}'", name, toml_text(row->field.get(config), row->type));
}

void Draft::refuse(std::string code, std::string_view name, std::string_view message,
                   std::string_view hint) {
  diagnostics.add(std::move(code), place(name), message, hint);
}

const MethodInfo* Draft::method() const {
  for (const MethodInfo& info : schema.methods) {
    if (info.name == config.method) {
      return &info;
    }
  }
  return nullptr;
}

}  // namespace isthmus::config
