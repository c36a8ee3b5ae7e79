// SPDX-License-Identifier: Apache-2.0
// The k largest magnitudes by counting. A pass that counts the magnitudes above a threshold costs a
// load, a compare and a popcount for 16 values, so bisection of the bit pattern finds a threshold
// that keeps k to kSlack k values. These are copied with their indices, and the bisection continues
// among them to the last bit. Included by files with their own -m flags; V defines
//   std::size_t count(bits, n, threshold)      bits[i] > threshold, n a multiple of 16
//   std::size_t keep(bits, n, threshold, kept, indices)   in order; may write 16 too many
#pragma once

#include "isthmus/codec.h"
#include "quant/cpu/select_top.h"
#include "quant/math/codec_math.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

constexpr std::size_t kSelectLanes = 16;
constexpr std::size_t kSlack = 4;

// Magnitudes are below 2^31, so signed compares suffice; -1 keeps all, padding is -1.
template <typename V>
void fast_select_top(const float* x, std::size_t n, std::size_t k, std::uint16_t* indices) {
  alignas(64) std::int32_t bits[kTileValues + kSelectLanes];
  alignas(64) std::int32_t kept[kTileValues + 2 * kSelectLanes];
  alignas(64) std::int32_t where[kTileValues + 2 * kSelectLanes];
  const std::int32_t most = V::magnitudes(x, n, bits);
  const std::size_t padded = (n + kSelectLanes - 1) / kSelectLanes * kSelectLanes;
  // count(> high) < k <= count(> low)
  std::int64_t high = most;
  std::int64_t low = -1;
  std::size_t above_low = n;
  std::int64_t step = std::int64_t{1} << 22;  // half an octave, then twice that
  while (above_low > kSlack * k && high - low > 1) {
    std::int64_t middle = low == -1 ? high - step : low + (high - low) / 2;
    if (middle <= low) middle = low + (high - low) / 2;
    const std::size_t count = V::count(bits, padded, static_cast<std::int32_t>(middle));
    if (count >= k) {
      low = middle;
      above_low = count;
    } else {
      high = middle;
    }
    step *= 2;
  }
  const std::size_t candidates = V::keep(bits, padded, static_cast<std::int32_t>(low), kept, where);
  const std::size_t kept_padded = (candidates + kSelectLanes - 1) / kSelectLanes * kSelectLanes;
  for (std::size_t i = candidates; i < kept_padded; ++i) kept[i] = -1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (V::count(kept, kept_padded, static_cast<std::int32_t>(middle)) >= k) {
      low = middle;
    } else {
      high = middle;
    }
  }
  // The k-th largest is `high`: all values above it, and the first ones equal to it.
  const auto last = static_cast<std::int32_t>(high);
  std::size_t equals = k - V::count(kept, kept_padded, last);
  for (std::size_t i = 0; i < candidates; ++i) {
    const bool equal = kept[i] == last;
    const bool take = kept[i] > last || (equal && equals > 0);
    *indices = static_cast<std::uint16_t>(where[i]);
    if (equal && take) --equals;
    if (take && --k == 0) return;
    indices += take ? 1 : 0;
  }
}

}  // namespace
}  // namespace isthmus
