// SPDX-License-Identifier: Apache-2.0
#include "c/c_errors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/names.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"

namespace isthmus::c {
namespace {

constexpr Named<ExitCode> kKinds[] = {
    {ExitCode::kConfig, "config"},
    {ExitCode::kUsage, "usage"},
    {ExitCode::kEnvironment, "environment"},
    {ExitCode::kRunFailed, "run"},
    {ExitCode::kPeer, "peer"},
};

std::string_view kind_of(ExitCode code) { return name_in(kKinds, code, "error"); }

std::string json_of(const std::vector<Diagnostic>& diagnostics) {
  auto array = nlohmann::json::array();
  for (const Diagnostic& each : diagnostics) {
    array.push_back({{"code", each.code},
                     {"where", each.where},
                     {"line", each.line},
                     {"column", each.column},
                     {"message", each.message},
                     {"hint", each.hint},
                     {"source_line", each.source_line}});
  }
  return array.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Where memory is too short even for an error. Never freed.
isthmus_error* no_memory() {
  static isthmus_error error{
      .text = "memory ran out", .kind = "environment", .diagnostics = "[]", .exit_code = 4};
  return &error;
}

isthmus_error* made_error() {
  try {
    throw;
  } catch (const ConfigErrors& error) {
    return new isthmus_error{.text = error.what(),
                             .kind = "config",
                             .diagnostics = json_of(error.diagnostics()),
                             .exit_code = static_cast<int>(error.exit_code())};
  } catch (const Error& error) {
    return new isthmus_error{.text = error.what(),
                             .kind = std::string(kind_of(error.exit_code())),
                             .diagnostics = "[]",
                             .exit_code = static_cast<int>(error.exit_code())};
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::exception& error) {
    return new isthmus_error{.text = std::string("a bug of isthmus: ") + error.what(),
                             .kind = "internal"};
  } catch (...) {
    return new isthmus_error{.text = "a bug of isthmus: an exception of no known kind",
                             .kind = "internal"};
  }
}

}  // namespace

isthmus_error* current_error() noexcept {
  try {
    return made_error();
  } catch (...) {
    return no_memory();
  }
}

char* owned_text(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void require(const void* argument, const char* function, const char* name) {
  if (argument == nullptr)
    throw ConfigError(std::string(function) + ": " + name + " is NULL: it must point to something");
}

void check_struct(const void* given, std::size_t size, std::size_t known, const char* name) {
  constexpr std::size_t kLongest = 4096;  // of any version; more is no size
  if (size <= sizeof size || size > kLongest)
    throw ConfigError(
        fmt::format("{}.size = {}: must be sizeof({}), {} here", name, size, name, known));
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw ConfigError(
        fmt::format("{}.size = {}: the struct has members that this library does not know, {} "
                    "bytes here, and one of them is set: use the library of that header",
                    name, size, known));
  }
}

std::vector<std::string> texts_of(const char* const* texts, std::size_t count,
                                  const char* function) {
  std::vector<std::string> copies;
  for (std::size_t i = 0; i < count; ++i) {
    require(texts, function, "overrides");
    require(texts[i], function, "an override");
    copies.emplace_back(texts[i]);
  }
  return copies;
}

}  // namespace isthmus::c

void isthmus_text_free(char* text) { std::free(text); }

const char* isthmus_error_text(const isthmus_error* error) { return error->text.c_str(); }
const char* isthmus_error_kind(const isthmus_error* error) { return error->kind.c_str(); }
int32_t isthmus_error_exit_code(const isthmus_error* error) { return error->exit_code; }
const char* isthmus_error_diagnostics(const isthmus_error* error) {
  return error->diagnostics.c_str();
}
void isthmus_error_free(isthmus_error* error) {
  if (error != isthmus::c::no_memory()) delete error;
}
