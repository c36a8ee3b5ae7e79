// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/uncorrected_adam.h"

#include <fmt/format.h>

#include "core/base/all_elements.h"
#include "isthmus/errors.h"
#include "kernels/optimizer.h"
#include "outer/parts/flat_view.h"

namespace isthmus::outer {

double gradient_norm(InnerLoop& inner) {
  double squares = 0;
  for (std::size_t i = 0; i < inner.parameters().size(); ++i) {
    const double norm = l2_norm(inner.gradient(i));
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

void adam_step(const AdamStep& step, std::span<float> x, std::span<const float> m,
               std::span<const float> v) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    kernels::adam_step_element(step, x[i], m[i], v[i]);
  }
}

InnerStep UncorrectedAdam::train_step(StepIndex t) {
  InnerStep step = gradients(t, {});
  step.grad_norm = apply_gradients(t);
  return step;
}

double UncorrectedAdam::apply_gradients(StepIndex t) {
  const AdamSettings adam = inner_.adam_settings();
  const double norm = gradient_norm(inner_);
  if (!std::isfinite(norm)) {
    throw RunError(fmt::format(
        "step {}: the gradient norm is {}: the run has diverged; lower inner.lr or set inner.clip",
        t.value(), norm));
  }
  const auto factor = static_cast<float>(kernels::clip_coefficient(adam.clip, norm));
  const auto b1 = static_cast<float>(adam.beta1);
  const auto b2 = static_cast<float>(adam.beta2);
  inner_.read_values(all_elements(inner_));
  inner_.read_moments(all_elements(inner_));
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    const Parameter& parameter = inner_.parameters()[i];
    const AdamMoments moments = inner_.adam_moments(i);
    const std::span<const float> gradient = inner_.gradient(i);
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      const float g = factor * gradient[k];
      moments.first[k] = b1 * moments.first[k] + (1 - b1) * g;
      moments.second[k] = b2 * moments.second[k] + (1 - b2) * (g * g);
    }
    adam_step({.lr = static_cast<float>(learning_rate(t)),
               .eps = static_cast<float>(adam.eps),
               .weight_decay = parameter.decay ? static_cast<float>(adam.weight_decay) : 0.0f},
              parameter.values, moments.first, moments.second);
  }
  inner_.wrote_moments(all_elements(inner_));
  inner_.wrote_values(all_elements(inner_));
  return norm;
}

}  // namespace isthmus::outer
