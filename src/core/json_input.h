// SPDX-License-Identifier: Apache-2.0
// JSON that anybody may have written, as text or as CBOR: strict, bounded, with errors that name
// the place.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace isthmus {

/// Parses one JSON document. Refuses duplicate keys (a plain parser keeps the last in silence) and
/// nesting beyond 64 levels. `label` names the source, for example the path.
/// THROWS: SystemError "LABEL: not valid JSON: ...".
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& label);

/// The same of one CBOR item (RFC 8949) and nothing after it; of what is no JSON value, no tags.
/// THROWS: SystemError "LABEL: not valid CBOR: ...".
[[nodiscard]] nlohmann::json parse_cbor(std::span<const std::byte> bytes, const std::string& label);

}  // namespace isthmus
