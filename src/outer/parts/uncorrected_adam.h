// SPDX-License-Identifier: Apache-2.0
// An InnerLoop with AdamW without bias correction, over another inner loop's gradients and moments:
// the warm-up of DeepSpeed's 1-bit optimizers. Also adam_step, the update used in warm-up and
// compressed phase. One thread.
#pragma once

#include <cmath>

#include "kernels/adam_step_math.h"
#include "outer/parts/forwarding_inner_loop.h"

namespace isthmus::outer {

/// L2 norm of the current gradients, in fp64.
[[nodiscard]] double gradient_norm(InnerLoop& inner);

using kernels::AdamStep;
/// DETERMINISM: every operation is rounded once (no fused multiply-add).
void adam_step(const AdamStep& step, std::span<float> x, std::span<const float> m,
               std::span<const float> v);

/// What it does not override is the wrapped loop's.
class UncorrectedAdam final : public ForwardingInnerLoop {
 public:
  using ForwardingInnerLoop::ForwardingInnerLoop;
  InnerStep train_step(StepIndex t) override;
  /// m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, then adam_step.
  double apply_gradients(StepIndex t) override;
};

}  // namespace isthmus::outer
