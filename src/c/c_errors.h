// SPDX-License-Identifier: Apache-2.0
// What crosses the C interface where C++ throws: an error object; and texts that C callers free.
#pragma once

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "isthmus/c.h"

struct isthmus_error {
  std::string text, kind, diagnostics = "[]";
  int exit_code = 1;
};

namespace isthmus::c {

/// The exception that is being handled as an error. Owned by the caller.
[[nodiscard]] isthmus_error* current_error() noexcept;

/// Runs `body`; what it throws is returned.
template <typename Body>
[[nodiscard]] isthmus_error* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return current_error();
  }
}

/// A copy that isthmus_text_free frees. THROWS: std::bad_alloc.
[[nodiscard]] char* owned_text(const std::string& text);

/// THROWS: ConfigError naming the argument where it is null.
void require(const void* argument, const char* function, const char* name);

/// THROWS: ConfigError where a struct `name`, whose size the caller has said, is a shorter one.
void check_size(std::size_t size, std::size_t needed, const char* name);

/// `count` texts of an array. THROWS: ConfigError where one is null.
[[nodiscard]] std::vector<std::string> texts_of(const char* const* texts, std::size_t count,
                                                const char* function);

}  // namespace isthmus::c
