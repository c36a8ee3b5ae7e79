// SPDX-License-Identifier: Apache-2.0
// A digest of a method's state that is equal on all workers: the anchors and the momenta that move
// them. It shows if the workers still agree. Pure; the worker's thread, between two steps.
#pragma once

#include <cstddef>

#include "core/base/hash.h"
#include "isthmus/outer.h"

namespace isthmus::outer {

/// Digest of the values of parameters 0 .. `parameters` - 1, and of the outer optimizer's saved
/// state: equal on workers that have applied the same rounds. State of one worker (local values,
/// residuals, inner moments) is not included. REQUIRES: shared_anchors(), no late round.
[[nodiscard]] Digest128 shared_digest(const OuterStrategy& strategy, std::size_t parameters);

}  // namespace isthmus::outer
