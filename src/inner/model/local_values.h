// SPDX-License-Identifier: Apache-2.0
// Contiguous values of a rank's layout, and their sharding over data-parallel ranks. Plain data.
#pragma once

#include <cstdint>

#include "inner/model/model_layout.h"

namespace isthmus {

/// Values of a contiguous range of a rank's layout; borrowed.
struct LocalValues {
  float* values = nullptr;  // values[0] is the value at range.begin
  CanonicalRange range{0, 0};
  [[nodiscard]] float* at(std::int64_t place) const { return values + (place - range.begin); }
};

/// Rank `rank`'s share of `count` values over `ranks`; independent of tensors' borders.
[[nodiscard]] inline CanonicalRange slice_of(std::int64_t count, int ranks, int rank) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

}  // namespace isthmus
