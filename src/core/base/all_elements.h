// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "isthmus/inner_loop.h"

namespace isthmus {

/// The canonical elements of all of a loop's parameters, for read_values and its like.
[[nodiscard]] CanonicalRange all_elements(const InnerLoop& inner);

}  // namespace isthmus
