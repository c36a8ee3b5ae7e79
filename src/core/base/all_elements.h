// SPDX-License-Identifier: Apache-2.0
// One range over all parameters of an inner loop, for callers that read or write the whole model.
#pragma once

#include "isthmus/inner_loop.h"

namespace isthmus {

/// Canonical elements of all of a loop's parameters, for example for read_values.
[[nodiscard]] CanonicalRange all_elements(const InnerLoop& inner);

}  // namespace isthmus
