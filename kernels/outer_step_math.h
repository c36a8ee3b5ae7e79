// SPDX-License-Identifier: Apache-2.0
// One element of an outer step, for host and device; legend in outer_step.h.
#pragma once

#include "kernels/host_device.h"

namespace isthmus::kernels {

ISTHMUS_HOST_DEVICE inline void sgd_element(float& x, float d, float eta) {
  x = sub_rn(x, mul_rn(eta, d));
}

ISTHMUS_HOST_DEVICE inline void nesterov_element(float& x, float d, float& b, float eta, float mu) {
  b = add_rn(mul_rn(mu, b), d);
  x = sub_rn(x, mul_rn(eta, add_rn(d, mul_rn(mu, b))));
}

/// `rounds` is N as a float.
ISTHMUS_HOST_DEVICE inline void delayed_nesterov_element(float& x, float d, float& b, float& s,
                                                         float eta, float mu, float rounds,
                                                         bool closes) {
  s = add_rn(s, d);
  float move = div_rn(d, rounds);
  if (closes) {
    b = add_rn(mul_rn(mu, b), div_rn(s, rounds));
    s = 0;
    move = add_rn(move, mul_rn(mu, b));
  }
  x = sub_rn(x, mul_rn(eta, move));
}

ISTHMUS_HOST_DEVICE inline void heavy_ball_element(float& x, float d, float& b, float eta,
                                                   float mu) {
  b = add_rn(mul_rn(mu, b), d);
  x = sub_rn(x, mul_rn(eta, b));
}

}  // namespace isthmus::kernels
