// SPDX-License-Identifier: Apache-2.0
// An InnerLoop that can idle: an idle loop reads no sample. A worker that continues from another
// worker's state thus applies that worker's later rounds without training. Results of rounds are
// applied all the same: `apply_gradients` always calls the wrapped loop. One thread.
#pragma once

#include "isthmus/inner_loop.h"

namespace isthmus::outer {

class IdleInnerLoop final : public InnerLoop {
 public:
  /// The loop trains until set_idle(true). Borrows `inner`.
  explicit IdleInnerLoop(InnerLoop& inner) : inner_(inner) {}

  /// Called between two steps.
  void set_idle(bool idle) { idle_ = idle; }

  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return inner_.parameters();
  }
  void read_values(CanonicalRange elements) override { inner_.read_values(elements); }
  void wrote_values(CanonicalRange elements) override { inner_.wrote_values(elements); }
  void read_moments(CanonicalRange elements) override { inner_.read_moments(elements); }
  void wrote_moments(CanonicalRange elements) override { inner_.wrote_moments(elements); }
  /// Idle: parameters do not change.
  InnerStep train_step(StepIndex t) override;
  /// Idle: all gradients are zero, and reported as ready.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  /// Idle: a loss of 0 over no tokens.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;

  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override {
    return inner_.gradient(parameter);
  }
  double apply_gradients(StepIndex t) override { return inner_.apply_gradients(t); }
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override {
    return inner_.loss(batch, source);
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return inner_.learning_rate(t); }
  [[nodiscard]] AdamSettings adam_settings() const override { return inner_.adam_settings(); }
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override {
    return inner_.adam_moments(parameter);
  }
  void reset_optimizer() override { inner_.reset_optimizer(); }
  void save(StateWriter& writer) const override { inner_.save(writer); }
  void load(StateReader& reader) override { inner_.load(reader); }

 private:
  InnerLoop& inner_;
  bool idle_ = false;
};

}  // namespace isthmus::outer
