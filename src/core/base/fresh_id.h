// SPDX-License-Identifier: Apache-2.0
// Names that nobody else has drawn: 128 random bits of the system. The one source of chance that is
// not a counter (core/base/rng.h), for identities alone; nothing that is computed may depend on it.
#pragma once

#include "core/base/hash.h"

namespace isthmus {

/// Any thread.
[[nodiscard]] Digest128 fresh_id();

}  // namespace isthmus
