// SPDX-License-Identifier: Apache-2.0
#include "outer/outer_optimizer.h"

#include <cstddef>

#include "core/check.h"

namespace isthmus::outer {

// The loops are bound by memory (16 or 24 bytes an element for 2 to 6 operations); plain forms let
// the compiler vectorise them, and -ffp-contract=off keeps each operation's rounding.
void OuterOptimizer::step(std::span<float> anchor, std::span<const float> gradient,
                          std::span<float> momentum_buffer) const {
  const std::size_t n = anchor.size();
  ISTHMUS_CHECK(gradient.size() == n, gradient.size(), n);
  ISTHMUS_CHECK(momentum_buffer.size() == (has_momentum() ? n : 0), momentum_buffer.size(), n);
  float* const x = anchor.data();
  const float* const d = gradient.data();
  float* const b = momentum_buffer.data();
  const float eta = lr;
  const float mu = momentum;
  switch (rule) {
    case OuterRule::kSgd:
      for (std::size_t i = 0; i < n; ++i) {
        x[i] -= eta * d[i];
      }
      return;
    case OuterRule::kNesterov:
      for (std::size_t i = 0; i < n; ++i) {
        b[i] = mu * b[i] + d[i];
        x[i] -= eta * (d[i] + mu * b[i]);
      }
      return;
    case OuterRule::kHeavyBall:
      for (std::size_t i = 0; i < n; ++i) {
        b[i] = mu * b[i] + d[i];
        x[i] -= eta * b[i];
      }
      return;
  }
}

}  // namespace isthmus::outer
