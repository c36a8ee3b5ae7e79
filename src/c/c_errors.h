// SPDX-License-Identifier: Apache-2.0
// Errors and texts at the C interface: an error object in place of a C++ exception; texts that C
// callers free.
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

/// The exception that is being handled, as an error object. Owned by the caller.
[[nodiscard]] isthmus_error* current_error() noexcept;

/// Runs `body`; returns its exception.
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

/// THROWS: ConfigError naming the argument if it is null.
void require(const void* argument, const char* function, const char* name);

/// Checks a struct `name` of the caller with its `size`. It may be an earlier version's, which is
/// shorter, or a later one's, whose members beyond `known` bytes must then be zero. THROWS:
/// ConfigError naming the struct and its size.
void check_struct(const void* given, std::size_t size, std::size_t known, const char* name);

/// The caller's struct; members missing in its header are zero. THROWS: as check_struct.
template <typename Struct>
[[nodiscard]] Struct taken(const Struct* given, const char* name) {
  Struct own{};
  std::size_t size = 0;  // the first member of every struct
  std::memcpy(&size, given, sizeof size);
  check_struct(given, size, sizeof own, name);
  std::memcpy(&own, given, size < sizeof own ? size : sizeof own);
  own.size = size;
  return own;
}

/// Writes the members that the caller's header has. REQUIRES: `own.size` is the caller's size.
template <typename Struct>
void give(const Struct& own, Struct* to) {
  std::memcpy(to, &own, own.size < sizeof own ? own.size : sizeof own);
}

/// `count` texts of an array. THROWS: ConfigError if one is null.
[[nodiscard]] std::vector<std::string> texts_of(const char* const* texts, std::size_t count,
                                                const char* function);

}  // namespace isthmus::c
