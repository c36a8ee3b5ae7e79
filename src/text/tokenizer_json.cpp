// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {

void TokenizerPart::bad(const std::string& defect) const {
  throw SystemError(fmt::format("{}: {}", label_, defect));
}

void TokenizerPart::unsupported(const std::string& thing, std::string_view supported) const {
  throw SystemError(fmt::format(
      "{}: {} is not supported (supported: {}); tokenize with the Python package `tokenizers` and "
      "give the ids as tokens:FILE",
      label_, thing, supported));
}

bool TokenizerPart::is_null() const { return value_->is_null(); }

bool TokenizerPart::is_text() const { return value_->is_string(); }

bool TokenizerPart::has(const char* key) const {
  return value_->is_object() && value_->contains(key) && !(*value_)[key].is_null();
}

TokenizerPart TokenizerPart::at(const char* key) const {
  if (!value_->is_object()) bad("is no object");
  const auto found = value_->find(key);
  if (found == value_->end()) bad(fmt::format("lacks \"{}\"", key));
  return {*found, fmt::format("{}.{}", label_, key)};
}

std::vector<TokenizerPart> TokenizerPart::elements() const {
  if (!value_->is_array()) bad("is no list");
  std::vector<TokenizerPart> parts;
  parts.reserve(value_->size());
  for (const nlohmann::json& element : *value_) {
    parts.emplace_back(element, fmt::format("{}[{}]", label_, parts.size()));
  }
  return parts;
}

std::vector<std::pair<std::string, TokenizerPart>> TokenizerPart::members() const {
  if (!value_->is_object()) bad("is no object");
  std::vector<std::pair<std::string, TokenizerPart>> parts;
  parts.reserve(value_->size());
  for (const auto& item : value_->items()) {
    parts.emplace_back(item.key(), TokenizerPart(item.value(), label_));
  }
  return parts;
}

std::string TokenizerPart::text() const {
  if (!value_->is_string()) bad(fmt::format("is {}, and a text is needed", value_->dump()));
  return value_->get<std::string>();
}

bool TokenizerPart::boolean() const {
  if (!value_->is_boolean()) bad(fmt::format("is {}, and true or false is needed", value_->dump()));
  return value_->get<bool>();
}

bool TokenizerPart::boolean_or(const char* key, bool otherwise) const {
  return has(key) ? at(key).boolean() : otherwise;
}

double TokenizerPart::number() const {
  if (!value_->is_number()) bad(fmt::format("is {}, and a number is needed", value_->dump()));
  return value_->get<double>();
}

std::uint32_t TokenizerPart::id() const {
  try {
    return static_cast<std::uint32_t>(whole_number<std::int32_t>(*value_)) <=
                   static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())
               ? static_cast<std::uint32_t>(whole_number<std::int32_t>(*value_))
               : throw std::out_of_range("negative");
  } catch (const std::out_of_range&) {
    bad(fmt::format("is {}, and a token id is a whole number from 0 to 2^31 - 1", value_->dump()));
  }
}

std::string TokenizerPart::type() const { return at("type").text(); }

}  // namespace isthmus
