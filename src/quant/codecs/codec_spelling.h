// SPDX-License-Identifier: Apache-2.0
// Spellings of codecs: `name[:number][:key=value...][:flag...]`. Parsing and the canonical form;
// codec_table.cpp has the allowed options of each codec.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

/// One allowed option. `values` lists its values, the default first: "fp32|fp16|e8m0"; empty for a
/// flag.
struct OptionRule {
  std::string_view key;
  std::string_view values;
};

/// The number after the name: a block size, or k of a sparse codec.
struct NumberRule {
  std::size_t fallback = 0;  // 0: the codec takes no number
  std::size_t least = 0;
  std::size_t most = 0;
  bool power_of_two = true;
  std::string_view meaning;  // "values that share a scale"
};

/// A spelling that conforms to its rules.
class ParsedSpelling {
 public:
  /// Canonical: always with the number, options only if they differ from the default.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t number() const { return number_; }
  /// The value of an option, given or default. REQUIRES: the rules have the key.
  [[nodiscard]] std::string_view value(std::string_view key) const;
  [[nodiscard]] bool is(std::string_view key, std::string_view value) const {
    return this->value(key) == value;
  }
  [[nodiscard]] bool has_flag(std::string_view flag) const { return !value(flag).empty(); }

 private:
  friend ParsedSpelling parse_spelling(std::string_view, const NumberRule&,
                                       std::span<const OptionRule>);
  struct Choice {
    std::string_view key;
    std::string value;
  };
  std::string name_;
  std::size_t number_ = 0;
  std::vector<Choice> choices_;
};

/// THROWS: ConfigError naming the spelling, the option, and the allowed values.
[[nodiscard]] ParsedSpelling parse_spelling(std::string_view spelling, const NumberRule& number,
                                            std::span<const OptionRule> options);

/// THROWS: ConfigError `codec = "spelling": why`.
[[noreturn]] void refuse_spelling(std::string_view spelling, std::string_view why);

}  // namespace isthmus
