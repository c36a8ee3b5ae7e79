// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "isthmus/codec.h"
#include "quant/cpu/select_top.h"
#include "quant/math/codec_math.h"

namespace isthmus {

void select_top_portable(const float* x, std::size_t n, std::size_t k, std::uint16_t* indices) {
  // Larger magnitude first, then lower index: one integer each.
  std::array<std::uint64_t, kTileValues> keys;
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = static_cast<std::uint64_t>(bits_of(x[i]) & kAbsMask) << 16 | (0xFFFFu - i);
  }
  const auto kth = keys.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(keys.begin(), kth - 1, keys.begin() + static_cast<std::ptrdiff_t>(n),
                   std::greater<>());
  std::transform(keys.begin(), kth, indices, [](std::uint64_t key) {
    return static_cast<std::uint16_t>(0xFFFFu - (key & 0xFFFFu));
  });
  std::sort(indices, indices + k);
}

}  // namespace isthmus
