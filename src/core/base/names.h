// SPDX-License-Identifier: Apache-2.0
// Tables of the words for values of an enumeration, for both directions. A switch serves instead
// where every value has a word and the compiler shall say which one is missing. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace isthmus {

template <typename Value>
struct Named {
  Value value;
  std::string_view name;
};

/// The name of `value`; `otherwise` where the table has no row for it.
template <typename Value, std::size_t N>
[[nodiscard]] constexpr std::string_view name_in(const Named<Value> (&table)[N],
                                                 std::type_identity_t<Value> value,
                                                 std::string_view otherwise) {
  for (const Named<Value>& row : table) {
    if (row.value == value) return row.name;
  }
  return otherwise;
}

/// The value of that name, if one has it.
template <typename Value, std::size_t N>
[[nodiscard]] constexpr std::optional<Value> value_in(const Named<Value> (&table)[N],
                                                      std::string_view name) {
  for (const Named<Value>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

/// All values of an enumeration that count from 0, from the function that names them by a switch:
/// the compiler says there which value is missing. `kNameOf` gives "" for what is no value.
template <typename Value, std::string_view (*kNameOf)(Value)>
[[nodiscard]] constexpr auto values_named_by() {
  constexpr std::size_t kCount = [] {
    std::size_t count = 0;
    while (!kNameOf(static_cast<Value>(count)).empty()) ++count;
    return count;
  }();
  std::array<Value, kCount> values{};
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<Value>(i);
  return values;
}

}  // namespace isthmus
