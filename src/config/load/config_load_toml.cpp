// SPDX-License-Identifier: Apache-2.0
// The only includer of toml++.
#include "config/load/config_load_toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <type_traits>

namespace isthmus::config {
namespace {

Place place_of(const toml::source_region& region, int source) {
  Place place;
  place.source = source;
  place.line = static_cast<int>(region.begin.line);
  place.column = static_cast<int>(region.begin.column);
  if (region.end.line == region.begin.line && region.end.column > region.begin.column) {
    place.width = static_cast<int>(region.end.column - region.begin.column);
  }
  return place;
}

SourceValue convert(const toml::node& node, int source);

SourceTable convert_table(const toml::table& table, int source) {
  SourceTable entries;
  entries.reserve(table.size());
  for (const auto& [key, value] : table) {
    entries.push_back(
        {std::string(key.str()), place_of(key.source(), source), convert(value, source)});
  }
  return entries;
}

SourceValue convert(const toml::node& node, int source) {
  SourceValue value;
  value.place = place_of(node.source(), source);
  node.visit([&](const auto& inner) {
    using Node = std::remove_cvref_t<decltype(inner)>;
    if constexpr (toml::is_table<Node>) {
      value.data = convert_table(inner, source);
    } else if constexpr (toml::is_array<Node>) {
      SourceArray array;
      for (const toml::node& element : inner) {
        array.push_back(convert(element, source));
      }
      value.data = std::move(array);
    } else if constexpr (toml::is_string<Node>) {
      value.data = std::string(inner.get());
    } else if constexpr (toml::is_integer<Node>) {
      value.data = static_cast<std::int64_t>(inner.get());
    } else if constexpr (toml::is_floating_point<Node>) {
      value.data = static_cast<double>(inner.get());
    } else if constexpr (toml::is_boolean<Node>) {
      value.data = static_cast<bool>(inner.get());
    } else {
      value.data = SourceDate{};
    }
  });
  return value;
}

}  // namespace

SourceTable parse_toml(std::string_view text, int source) {
  try {
    const toml::table table = toml::parse(text);
    return convert_table(table, source);
  } catch (const toml::parse_error& error) {
    throw SyntaxError{place_of(error.source(), source), std::string(error.description())};
  }
}

SourceValue parse_override_value(std::string_view text, int source) {
  SourceValue as_text;
  as_text.place = {source, 0, 0, 1};
  as_text.data = std::string(text);
  if (text.find_first_of("\n\r") != std::string_view::npos ||
      control_character(text) != std::string_view::npos) {
    return as_text;
  }
  try {
    SourceTable table = parse_toml(fmt::format("x = {}", text), source);
    if (table.size() == 1 && table.front().key == "x") {
      table.front().value.place = as_text.place;
      return std::move(table.front().value);
    }
  } catch (const SyntaxError&) {
    // A bare word, as in --set outer.method=diloco.
  }
  return as_text;
}

std::size_t control_character(std::string_view text) {
  const auto found = std::find_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F;
  });
  return found == text.end() ? std::string_view::npos
                             : static_cast<std::size_t>(found - text.begin());
}

}  // namespace isthmus::config
