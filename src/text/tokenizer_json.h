// SPDX-License-Identifier: Apache-2.0
// Reads the parts of a tokenizer.json: every field by name. A field that is missing, of another
// type or not supported is an error that names file, component and remedy.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

/// A component of the file, with its name in errors: "x/tokenizer.json: pre_tokenizer".
class TokenizerPart {
 public:
  TokenizerPart(const nlohmann::json& value, std::string label)
      : value_(&value), label_(std::move(label)) {}

  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool has(const char* key) const;
  /// THROWS: SystemError when the component is not an object or has no such key.
  [[nodiscard]] TokenizerPart at(const char* key) const;
  /// The elements of a list, or of a list below `key`.
  [[nodiscard]] std::vector<TokenizerPart> elements() const;
  /// Keys and values of an object, in the order of the keys.
  [[nodiscard]] std::vector<std::pair<std::string, TokenizerPart>> members() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] bool boolean_or(const char* key, bool otherwise) const;
  [[nodiscard]] double number() const;
  /// A token id: 0 to 2^31 - 1.
  [[nodiscard]] std::uint32_t id() const;
  [[nodiscard]] bool is_text() const;
  /// The value of "type".
  [[nodiscard]] std::string type() const;

  /// THROWS: SystemError "LABEL: DEFECT".
  [[noreturn]] void bad(const std::string& defect) const;
  /// THROWS: SystemError that the thing is not supported, with the supported ones.
  [[noreturn]] void unsupported(const std::string& thing, std::string_view supported) const;

 private:
  const nlohmann::json* value_;
  std::string label_;
};

}  // namespace isthmus
