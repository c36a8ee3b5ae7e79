// SPDX-License-Identifier: Apache-2.0
// An InnerLoop that can idle: an idle loop reads no sample. A worker that continues from another
// worker's state thus applies that worker's later rounds without training. Results of rounds are
// applied all the same: `apply_gradients` always calls the wrapped loop. One thread.
#pragma once

#include "outer/parts/forwarding_inner_loop.h"

namespace isthmus::outer {

class IdleInnerLoop final : public ForwardingInnerLoop {
 public:
  /// The loop trains until set_idle(true). Borrows `inner`.
  using ForwardingInnerLoop::ForwardingInnerLoop;

  /// Called between two steps.
  void set_idle(bool idle) { idle_ = idle; }

  /// Idle: parameters do not change.
  InnerStep train_step(StepIndex t) override;
  /// Idle: all gradients are zero, and reported as ready.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  /// Idle: a loss of 0 over no tokens.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;

 private:
  bool idle_ = false;
};

}  // namespace isthmus::outer
