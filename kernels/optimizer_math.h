// SPDX-License-Identifier: Apache-2.0
// Constants of one AdamW update, rounded once to the type it runs in.
#pragma once

#include <cmath>

#include "kernels/optimizer.h"

namespace isthmus::kernels {

template <typename Real>
struct AdamWConstants {
  explicit AdamWConstants(const AdamWOptions& o)
      : decay(static_cast<Real>(1 - o.lr * o.weight_decay)),
        keep1(static_cast<Real>(1 - o.beta1)),
        beta2(static_cast<Real>(o.beta2)),
        keep2(static_cast<Real>(1 - o.beta2)),
        rate(static_cast<Real>(o.lr / (1 - std::pow(o.beta1, static_cast<double>(o.step))))),
        root(static_cast<Real>(std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step))))),
        eps(static_cast<Real>(o.eps)),
        factor(static_cast<Real>(o.gradient_scale)) {}
  Real decay, keep1, beta2, keep2, rate, root, eps, factor;
};

}  // namespace isthmus::kernels
