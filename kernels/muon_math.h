// SPDX-License-Identifier: Apache-2.0
// One element of Muon's update, for host and device; legend in muon.h.
#pragma once

#include "kernels/host_device.h"

namespace isthmus::kernels {

inline constexpr int kNewtonSchulzSteps = 5;
// x -> a x + b x^3 + c x^5 on singular values: the steepest at 0 of those that end near 1.
inline constexpr float kNewtonSchulzA = 3.4445f, kNewtonSchulzB = -4.7750f,
                       kNewtonSchulzC = 2.0315f;

/// Factor of a matrix with this Frobenius norm, which bounds its largest singular value, before the
/// first step.
ISTHMUS_HOST_DEVICE inline float newton_schulz_start(double norm) {
  constexpr double kLeast = 1e-7;
  return static_cast<float>(1 / (norm < kLeast ? kLeast : norm));
}

/// Updates an element's momentum. keep: 1 - momentum. RETURNS: the direction of the step.
ISTHMUS_HOST_DEVICE inline float muon_direction(float gradient, float keep, bool nesterov,
                                                float& buffer) {
  buffer = add_rn(buffer, mul_rn(keep, sub_rn(gradient, buffer)));
  // g + momentum (b - g), written so that the small factor is multiplied
  return nesterov ? add_rn(buffer, mul_rn(keep, sub_rn(gradient, buffer))) : buffer;
}

/// u x + v y.
ISTHMUS_HOST_DEVICE inline float combination(float u, float x, float v, float y) {
  return add_rn(mul_rn(u, x), mul_rn(v, y));
}

}  // namespace isthmus::kernels
