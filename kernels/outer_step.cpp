// SPDX-License-Identifier: Apache-2.0
// Bound by memory (12 or 20 bytes for 2 to 6 operations), so the plain loop is left to the
// compiler's vectoriser; -ffp-contract=off keeps each operation's rounding.
#include "kernels/outer_step.h"

#include "core/base/check.h"
#include "kernels/outer_step_math.h"

namespace isthmus::kernels {

void outer_step(const OuterStep& step, std::span<float> x, std::span<const float> d,
                std::span<float> b) {
  const std::size_t n = x.size();
  ISTHMUS_CHECK(d.size() == n, d.size(), n);
  ISTHMUS_CHECK(b.size() == (step.rule == OuterStepRule::kSgd ? 0 : n), b.size(), n);
  switch (step.rule) {
    case OuterStepRule::kSgd:
      for (std::size_t i = 0; i < n; ++i) sgd_element(x[i], d[i], step.eta);
      return;
    case OuterStepRule::kNesterov:
      for (std::size_t i = 0; i < n; ++i) nesterov_element(x[i], d[i], b[i], step.eta, step.mu);
      return;
    case OuterStepRule::kHeavyBall:
      for (std::size_t i = 0; i < n; ++i) heavy_ball_element(x[i], d[i], b[i], step.eta, step.mu);
      return;
  }
}

void delayed_nesterov_step(const OuterStep& step, bool closes, std::span<float> x,
                           std::span<const float> d, std::span<float> b, std::span<float> s) {
  const std::size_t n = x.size();
  ISTHMUS_CHECK(step.rule == OuterStepRule::kNesterov && step.every >= 1, step.every);
  ISTHMUS_CHECK(d.size() == n && b.size() == n && s.size() == n, d.size(), b.size(), s.size(), n);
  const auto rounds = static_cast<float>(step.every);
  for (std::size_t i = 0; i < n; ++i) {
    delayed_nesterov_element(x[i], d[i], b[i], s[i], step.eta, step.mu, rounds, closes);
  }
}

}  // namespace isthmus::kernels
