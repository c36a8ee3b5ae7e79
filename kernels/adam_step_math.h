// SPDX-License-Identifier: Apache-2.0
// One element of an Adam step for given moments, and of the momentum that a worker of 1-bit Adam
// sends (src/outer/methods/one_bit_adam.h), for host and device. Each operation is rounded once.
#pragma once

#include "kernels/host_device.h"

namespace isthmus::kernels {

/// The constants of one Adam step: x <- x - lr (scale m / (sqrt(v) + eps) + wd x).
struct AdamStep {
  float lr = 0;
  float momentum_scale = 1;  // 1 / (1 - b1^t) with bias correction
  float eps = 0;
  float weight_decay = 0;
};

ISTHMUS_HOST_DEVICE inline void adam_step_element(const AdamStep& step, float& x, float m,
                                                  float v) {
  const float direction = div_rn(mul_rn(step.momentum_scale, m), add_rn(sqrt_rn(v), step.eps));
  x = sub_rn(x, mul_rn(step.lr, add_rn(direction, mul_rn(step.weight_decay, x))));
}

/// m_i = keep * m + own * g_i.
ISTHMUS_HOST_DEVICE inline float own_momentum(float keep, float m, float own, float g) {
  return add_rn(mul_rn(keep, m), mul_rn(own, g));
}

}  // namespace isthmus::kernels
