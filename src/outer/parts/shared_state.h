// SPDX-License-Identifier: Apache-2.0
// What all workers hold alike of a method: the anchors and the momenta that move them. A digest of
// it tells whether they still do. Pure; the worker's thread, between two steps.
#pragma once

#include <cstddef>

#include "core/base/hash.h"
#include "isthmus/outer.h"

namespace isthmus::outer {

/// Of the values of parameters 0 .. `parameters` - 1, and of the outer optimizer's state as the
/// method saves it: workers that have applied the same rounds have the same. What is a worker's own
/// (local values, residuals, inner moments) is not in it. REQUIRES: shared_anchors(), no round
/// late.
[[nodiscard]] Digest128 shared_digest(const OuterStrategy& strategy, std::size_t parameters);

}  // namespace isthmus::outer
