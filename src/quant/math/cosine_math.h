// SPDX-License-Identifier: Apache-2.0
// The part of dct-topk's transform that host and device share (quant/codecs/cosine_transform.h).
#pragma once

#include <cstddef>

#include "isthmus/codec.h"
#include "kernels/host_device.h"
#include "quant/math/codec_math.h"

namespace isthmus {

inline constexpr std::size_t kCosineSide = 64;
static_assert(kCosineSide * kCosineSide == kTileValues);
inline constexpr float kCosineGuard = 64;

ISTHMUS_HOST_DEVICE inline float cosine_guarded(float value) { return value / kCosineGuard; }
/// Clamped to the largest float; a NaN stays one.
ISTHMUS_HOST_DEVICE inline float cosine_unguarded(float value) {
  constexpr float kMost = 0x1.fffffep+127f / kCosineGuard;
  const float low = value < -kMost ? -kMost : value;
  return (low > kMost ? kMost : low) * kCosineGuard;
}

}  // namespace isthmus
