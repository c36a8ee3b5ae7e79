// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "isthmus/inner_loop.h"

namespace isthmus {

/// Canonical elements of all of a loop's parameters, for example for read_values.
[[nodiscard]] CanonicalRange all_elements(const InnerLoop& inner);

}  // namespace isthmus
