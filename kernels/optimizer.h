// SPDX-License-Identifier: Apache-2.0
// Flat-span arithmetic of optimizers: AdamW (Loshchilov & Hutter arXiv:1711.05101) and SGD as in
// torch.optim, gradient norm and scaling. Multiplications and additions are separate, so results
// have the same bits for every machine, instruction set and team size.
#pragma once

#include <cstdint>

#include "kernels/thread_team.h"

namespace isthmus::kernels {

struct AdamWOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;    // decoupled: p *= 1 - lr * weight_decay first
  std::int64_t step = 1;      // number of this update, from 1: bias correction 1 - beta^step
  double gradient_scale = 1;  // multiplies the gradient (clipping)
};

/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr/(1 - b1^t) m / (sqrt(v)/sqrt(1 - b2^t) +
/// eps). All (n,); 28 bytes moved per float element.
template <typename Real>
void adamw_step(ThreadTeam& team, const AdamWOptions& options, std::int64_t n, Real* p,
                const Real* g, Real* m, Real* v);

/// min(1, clip / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it; 1 when clip is 0 (off).
[[nodiscard]] double clip_coefficient(double clip, double norm);

struct SgdOptions {
  double lr = 0, momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // coupled: g += weight_decay p
  bool first_step = false;  // the momentum buffer starts as the gradient
  double gradient_scale = 1;
};

/// d = g (+ wd p); b = momentum b + d (b = d at the first step); p -= lr (nesterov ? d + momentum b
/// : b). buffer may be null when momentum == 0.
template <typename Real>
void sgd_step(ThreadTeam& team, const SgdOptions& options, std::int64_t n, Real* p, const Real* g,
              Real* buffer);

/// Sum of squares in double. DETERMINISM: one partial per 4096 elements, partials added in order.
template <typename Real>
[[nodiscard]] double squared_norm(ThreadTeam& team, std::int64_t n, const Real* x);

}  // namespace isthmus::kernels
