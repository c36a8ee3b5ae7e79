// SPDX-License-Identifier: Apache-2.0
// When a wait ends that may be as long as time itself.
#pragma once

#include "isthmus/types.h"

namespace isthmus {

/// `begin` + `patience`, or kNever where the sum lies beyond the clock's range. REQUIRES: begin >=
/// 0.
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint begin, Duration patience) {
  return patience >= kNever - begin ? kNever : begin + patience;
}

}  // namespace isthmus
