// SPDX-License-Identifier: Apache-2.0
// A plain copy, spread over a team.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/thread_team.h"

namespace isthmus {

/// to[i] = from[i]; the two do not overlap.
template <typename T>
void copy_values(kernels::ThreadTeam& team, std::int64_t count, const T* from, T* to) {
  constexpr std::int64_t kValuesAtOnce = std::int64_t{1} << 14;
  team.for_blocks(count, kValuesAtOnce, [=](std::int64_t begin, std::int64_t end) {
    std::copy_n(from + begin, end - begin, to + begin);
  });
}

}  // namespace isthmus
