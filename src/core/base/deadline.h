// SPDX-License-Identifier: Apache-2.0
// Deadlines of waits that may have no end.
#pragma once

#include "isthmus/types.h"

namespace isthmus {

/// `begin` + `patience`, or kNever if the sum is beyond the clock's range. REQUIRES: begin >= 0.
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint begin, Duration patience) {
  return patience >= kNever - begin ? kNever : begin + patience;
}

}  // namespace isthmus
