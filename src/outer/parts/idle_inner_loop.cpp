// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/idle_inner_loop.h"

#include <algorithm>

namespace isthmus::outer {

InnerStep IdleInnerLoop::train_step(StepIndex t) {
  return idle_ ? InnerStep{.idle = true} : inner_.train_step(t);
}

InnerStep IdleInnerLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  if (!idle_) return inner_.gradients(t, on_ready);
  for (std::size_t i = inner_.parameters().size(); i-- > 0;) {
    std::ranges::fill(inner_.gradient(i), 0.0f);
    if (on_ready) on_ready(i);
  }
  return {.idle = true};
}

InnerStep IdleInnerLoop::train_loss(StepIndex t, SampleShare share, const ParameterSource& source) {
  return idle_ ? InnerStep{.idle = true} : inner_.train_loss(t, share, source);
}

}  // namespace isthmus::outer
