// SPDX-License-Identifier: Apache-2.0
// ISTHMUS_CHECK(condition, values...): a broken invariant ends the process with the place, the
// condition and the values. On in every build. For errors of input use isthmus/errors.h.
#pragma once

#include <fmt/format.h>

#include <string>

namespace isthmus::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

inline std::string check_values() { return {}; }
template <typename... Values>
std::string check_values(const Values&... values) {
  std::string text;
  ((text += fmt::format(" {}", values)), ...);
  return text;
}

}  // namespace isthmus::detail

#define ISTHMUS_CHECK(condition, ...)                                                \
  do {                                                                               \
    if (!(condition)) [[unlikely]] {                                                 \
      ::isthmus::detail::check_failed(__FILE__, __LINE__, #condition,                \
                                      ::isthmus::detail::check_values(__VA_ARGS__)); \
    }                                                                                \
  } while (false)
