// SPDX-License-Identifier: Apache-2.0
// An InnerLoop with AdamW without bias correction, over another inner loop's gradients and moments:
// the warm-up of DeepSpeed's 1-bit optimizers. Also adam_step, the update used in warm-up and
// compressed phase. One thread.
#pragma once

#include <cmath>

#include "isthmus/inner_loop.h"
#include "kernels/adam_step_math.h"

namespace isthmus::outer {

/// L2 norm of the current gradients, in fp64.
[[nodiscard]] double gradient_norm(InnerLoop& inner);

using kernels::AdamStep;
/// DETERMINISM: every operation is rounded once (no fused multiply-add).
void adam_step(const AdamStep& step, std::span<float> x, std::span<const float> m,
               std::span<const float> v);

/// Implements the functions of an InnerLoop that `ddp` calls.
class UncorrectedAdam final : public InnerLoop {
 public:
  explicit UncorrectedAdam(InnerLoop& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return inner_.parameters();
  }
  void read_values(CanonicalRange elements) override { inner_.read_values(elements); }
  void wrote_values(CanonicalRange elements) override { inner_.wrote_values(elements); }
  void read_moments(CanonicalRange elements) override { inner_.read_moments(elements); }
  void wrote_moments(CanonicalRange elements) override { inner_.wrote_moments(elements); }
  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    return inner_.gradients(t, on_ready);
  }
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override {
    return inner_.gradient(parameter);
  }
  /// m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, then adam_step.
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override { return inner_.learning_rate(t); }

 private:
  InnerLoop& inner_;
};

}  // namespace isthmus::outer
