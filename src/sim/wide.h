// SPDX-License-Identifier: Apache-2.0
// Products of 64-bit integers, divided without overflow: used for link shares.
#pragma once

#include <cstdint>

#include "core/base/check.h"

namespace isthmus {

__extension__ typedef __int128 Int128;

/// floor(a * b / c). REQUIRES: a, b >= 0, c > 0, a result that fits.
[[nodiscard]] inline std::int64_t multiply_divide(std::int64_t a, std::int64_t b, std::int64_t c) {
  ISTHMUS_CHECK(c > 0, a, b, c);
  return static_cast<std::int64_t>(static_cast<Int128>(a) * b / c);
}

}  // namespace isthmus
