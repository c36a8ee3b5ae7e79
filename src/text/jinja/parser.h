// SPDX-License-Identifier: Apache-2.0
// Parses a template's source into its tree. Constructs of Jinja that this reader does not support
// are errors with their line, as are unknown filters and tests. A pure function; any thread.
#pragma once

#include <string_view>

#include "text/jinja/nodes.h"

namespace isthmus::jinja {

/// Fuzzed. THROWS: Refusal "line N: ...".
[[nodiscard]] Nodes parse_template(std::string_view source);

}  // namespace isthmus::jinja
