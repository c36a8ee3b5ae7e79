// SPDX-License-Identifier: Apache-2.0
// JSON from untrusted sources, as text or as CBOR: strict, bounded, with errors that name the
// place.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace isthmus {

/// Parses one JSON document. Refuses duplicate keys (a plain parser silently keeps the last) and
/// nesting beyond 64 levels. `label` names the source, for example the path. THROWS: SystemError
/// "LABEL: not valid JSON: ...".
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& label);

/// Parses a JSON document that this program has written: no limits, the last of equal keys counts.
/// The parser is compiled here once; a source that calls nlohmann's own `parse` compiles it again.
/// RETURNS: a value with `is_discarded()` when `text` is not JSON.
[[nodiscard]] nlohmann::json read_json(std::string_view text);

/// RETURNS: the JSON document `text` over several lines, indented by two blanks, keys in their
/// order. `label` names it. THROWS: SystemError "LABEL: not valid JSON: ...".
[[nodiscard]] std::string indented_json(std::string_view text, const std::string& label);

/// The same as parse_json for one CBOR item (RFC 8949) without trailing bytes. Values that JSON
/// does not have, and tags, are errors. THROWS: SystemError "LABEL: not valid CBOR: ...".
[[nodiscard]] nlohmann::json parse_cbor(std::span<const std::byte> bytes, const std::string& label);

/// The bits of a whole number that lies in [least, most]. THROWS: std::out_of_range.
[[nodiscard]] std::uint64_t whole_number_bits(const nlohmann::json& value, std::int64_t least,
                                              std::uint64_t most);

/// An integer that T can hold. (The parser's own conversion also casts fractions, some of which
/// cannot be cast, and truncates large values.) THROWS: std::out_of_range.
template <std::integral T>
[[nodiscard]] T whole_number(const nlohmann::json& value) {
  using Limits = std::numeric_limits<T>;
  return static_cast<T>(
      whole_number_bits(value, std::int64_t{Limits::min()}, std::uint64_t{Limits::max()}));
}

}  // namespace isthmus
