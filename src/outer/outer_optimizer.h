// SPDX-License-Identifier: Apache-2.0
// Outer optimizers: x is the anchor, d the mean outer gradient (old minus new, so it is
// subtracted), b the momentum, eta the outer learning rate, mu the momentum factor.
//   sgd         x <- x - eta d
//   nesterov    b <- mu b + d ;  x <- x - eta (d + mu b)     (PyTorch form, no dampening)
//   heavy ball  b <- mu b + d ;  x <- x - eta b              (SlowMo, CO2)
// For constant eta the Nesterov form equals FedMom's (v = x - eta d; x <- v + mu (v - v_old)).
// DETERMINISM: fp32, each product and each sum rounded once, never contracted, so that unlike CPUs
// keep the same anchors.
#pragma once

#include <span>

namespace isthmus::outer {

enum class OuterRule { kSgd, kNesterov, kHeavyBall };

/// Immutable; any thread. Element-wise, so a fragment may be stepped alone or with others.
struct OuterOptimizer {
  OuterRule rule = OuterRule::kSgd;
  float lr = 1;
  float momentum = 0;

  [[nodiscard]] bool has_momentum() const { return rule != OuterRule::kSgd; }
  /// anchor, gradient: (n,) float32. momentum_buffer: (n,) with momentum, else empty.
  void step(std::span<float> anchor, std::span<const float> gradient,
            std::span<float> momentum_buffer) const;
};

}  // namespace isthmus::outer
