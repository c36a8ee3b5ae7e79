// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace isthmus::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.values.size() > names_.size()) {
    throw Refusal(fmt::format("{} takes {} arguments at most, and {} are given", function_,
                              names_.size(), arguments.values.size()));
  }
  for (std::size_t i = 0; i < arguments.values.size(); ++i) values_[i] = &arguments.values[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      throw Refusal(fmt::format("{} takes no argument '{}'", function_, name));
    }
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr) throw Refusal(fmt::format("{}: '{}' is given twice", function_, name));
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      throw Refusal(fmt::format("{}: the argument '{}' is missing", function_, names_[i]));
    }
  }
}

void Parameters::refuse(std::size_t index, const char* wanted) const {
  throw Refusal(fmt::format("{}: '{}' must be {}, not a {}", function_, names_[index], wanted,
                            at(index).type_name()));
}

std::string Parameters::text(std::size_t index, std::string otherwise) const {
  if (!has(index)) return otherwise;
  if (!at(index).is_string()) refuse(index, "a text");
  return at(index).text();
}

std::int64_t Parameters::whole(std::size_t index, std::int64_t otherwise) const {
  if (!has(index)) return otherwise;
  if (!at(index).is_whole()) refuse(index, "a whole number");
  return at(index).whole();
}

bool Parameters::flag(std::size_t index, bool otherwise) const {
  return has(index) ? at(index).truth() : otherwise;
}

}  // namespace isthmus::jinja
