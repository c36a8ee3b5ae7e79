// SPDX-License-Identifier: Apache-2.0
// Unique names: 128 random bits of the system. The only random source that is not a counter
// (core/base/rng.h), for identities only; no computed value may depend on it.
#pragma once

#include "core/base/hash.h"

namespace isthmus {

/// Any thread. THROWS: SystemError when the system gives no random numbers.
[[nodiscard]] Digest128 fresh_id();

}  // namespace isthmus
