// SPDX-License-Identifier: Apache-2.0
#include "config/load/config_load_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "config/load/config_load_toml.h"
#include "core/base/utf8_text.h"

namespace isthmus::config {
namespace {

constexpr std::uintmax_t kLargestFile = 1 << 20;

}  // namespace

std::string read_config_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw SystemError(fmt::format("{}: no such file; `isthmus init` writes one", file.string()));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw SystemError(fmt::format("{}: is a folder; name the TOML file in it", file.string()));
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw SystemError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  }
  // One byte more than allowed: devices and pipes have no size to ask for.
  std::string text(kLargestFile + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) {
    throw SystemError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestFile) {
    throw ConfigError(
        fmt::format("{}: larger than 1 MiB; this is no configuration", file.string()));
  }
  return text;
}

std::optional<SourceTable> parse_source(std::string_view text, Diagnostics& diagnostics) {
  const std::size_t bad = invalid_utf8(text);
  if (bad != std::string_view::npos) {
    diagnostics.add("E-ENCODING", {},
                    fmt::format("not UTF-8 text: byte {} is 0x{:02x}", bad,
                                static_cast<unsigned char>(text[bad])),
                    "save the file as UTF-8");
    return std::nullopt;
  }
  if (const std::size_t control = control_character(text); control != std::string_view::npos) {
    const auto before = text.substr(0, control);
    Place place{0, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')), 1, 1};
    for (const char c : before.substr(before.rfind('\n') + 1)) {
      place.column += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    }
    diagnostics.add("E-TOML", place,
                    fmt::format("not TOML: control character 0x{:02x}",
                                static_cast<unsigned char>(text[control])),
                    "remove it; text can hold it as \\u00XX");
    return std::nullopt;
  }
  try {
    return parse_toml(text, 0);
  } catch (const SyntaxError& error) {
    const bool twice = error.text.find("redefine") != std::string::npos;
    diagnostics.add(twice ? "E-KEY-TWICE" : "E-TOML", error.place,
                    fmt::format("{}: {}", twice ? "given twice" : "not TOML", error.text));
    return std::nullopt;
  }
}

}  // namespace isthmus::config
