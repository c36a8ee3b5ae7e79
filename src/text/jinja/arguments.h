// SPDX-License-Identifier: Apache-2.0
// The arguments of a call, and their assignment to parameters.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace isthmus::jinja {

struct Arguments {
  Values values;
  std::vector<std::pair<std::string, Value>> named;
};

/// A call's arguments by the names of its parameters.
class Parameters {
 public:
  /// function: for messages. THROWS: Refusal for too many arguments, an unknown name or a repeated
  /// one, and for fewer than `required`.
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required);

  /// True if the argument was given.
  [[nodiscard]] bool has(std::size_t index) const { return values_[index] != nullptr; }
  [[nodiscard]] const Value& at(std::size_t index) const { return *values_[index]; }
  [[nodiscard]] Value at(std::size_t index, Value otherwise) const {
    if (has(index)) return at(index);
    return otherwise;
  }
  /// THROWS: Refusal for a value of another kind.
  [[nodiscard]] std::string text(std::size_t index, std::string otherwise) const;
  [[nodiscard]] std::int64_t whole(std::size_t index, std::int64_t otherwise) const;
  [[nodiscard]] bool flag(std::size_t index, bool otherwise) const;

 private:
  [[noreturn]] void refuse(std::size_t index, const char* wanted) const;
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace isthmus::jinja
