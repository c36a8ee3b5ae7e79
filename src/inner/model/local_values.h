// SPDX-License-Identifier: Apache-2.0
// Neighbouring values among those of a rank's layout, and how data-parallel ranks share them out.
// Plain data.
#pragma once

#include <cstdint>

#include "inner/model/model_layout.h"

namespace isthmus {

/// Values of neighbouring places of a rank's layout; borrowed.
struct LocalValues {
  float* values = nullptr;  // of range.begin first
  CanonicalRange range{0, 0};
  [[nodiscard]] float* at(std::int64_t place) const { return values + (place - range.begin); }
};

/// Rank `rank`'s values of `count` that `ranks` share; tensors' borders do not matter.
[[nodiscard]] inline CanonicalRange slice_of(std::int64_t count, int ranks, int rank) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

}  // namespace isthmus
