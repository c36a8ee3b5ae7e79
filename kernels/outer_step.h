// SPDX-License-Identifier: Apache-2.0
// One step of an outer optimizer on flat vectors: x is the anchor, d the mean outer gradient (old
// minus new, so it is subtracted), b the momentum, eta the learning rate, mu the momentum factor.
//   sgd         x <- x - eta d
//   nesterov    b <- mu b + d ;  x <- x - eta (d + mu b)     (PyTorch form, no dampening)
//   heavy ball  b <- mu b + d ;  x <- x - eta b
//   delayed Nesterov, N = every > 1 (arXiv:2401.09135 Alg. 3, with c = 0): s sums the d,
//               rounds 1 .. N-1:  x <- x - eta d / N
//               round N:          b <- mu b + s / N ; s <- 0 ;  x <- x - eta (d / N + mu b)
// DETERMINISM: each product and each sum is rounded once, in fp32, on every device.
#pragma once

#include <span>

namespace isthmus::kernels {

enum class OuterStepRule { kSgd, kNesterov, kHeavyBall };

struct OuterStep {
  OuterStepRule rule = OuterStepRule::kSgd;
  float eta = 1;
  float mu = 0;
  int every = 1;  // N; above 1 only for kNesterov, through delayed_nesterov_step
};

/// x, d: (n,) float32, not overlapping. b: (n,) with momentum, else empty.
/// Memory: 12 bytes an element (sgd), 20 with momentum.
void outer_step(const OuterStep& step, std::span<float> x, std::span<const float> d,
                std::span<float> b);

/// The N-th round of delayed Nesterov if `closes`, else an earlier one. All (n,) float32. Memory:
/// 20 bytes an element, 28 if it closes.
void delayed_nesterov_step(const OuterStep& step, bool closes, std::span<float> x,
                           std::span<const float> d, std::span<float> b, std::span<float> s);

}  // namespace isthmus::kernels
