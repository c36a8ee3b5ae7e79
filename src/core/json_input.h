// SPDX-License-Identifier: Apache-2.0
// JSON from files that anybody may have written: strict, bounded, with errors that name the place.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace isthmus {

/// Parses one JSON document. Refuses duplicate keys (a plain parser keeps the last in silence) and
/// nesting beyond 64 levels. `label` names the source, for example the path.
/// THROWS: SystemError "LABEL: not valid JSON: ...".
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& label);

}  // namespace isthmus
