// SPDX-License-Identifier: Apache-2.0
// The tree of a template from its source. What Jinja has and this reader has not is refused with
// its line; so are filters and tests of other names. A pure function; any thread.
#pragma once

#include <string_view>

#include "text/jinja/nodes.h"

namespace isthmus::jinja {

/// Fuzzed. THROWS: Refusal "line N: ...".
[[nodiscard]] Nodes parse_template(std::string_view source);

}  // namespace isthmus::jinja
