// SPDX-License-Identifier: Apache-2.0
// An InnerLoop around another one: every call goes to the wrapped loop, except those that a derived
// class overrides. Blocks and THROWS as the wrapped loop. One thread.
#pragma once

#include "isthmus/inner_loop.h"

namespace isthmus::outer {

class ForwardingInnerLoop : public InnerLoop {
 public:
  /// Borrows `inner`.
  explicit ForwardingInnerLoop(InnerLoop& inner) : inner_(inner) {}

  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return inner_.parameters();
  }
  void read_values(CanonicalRange elements) override { inner_.read_values(elements); }
  void wrote_values(CanonicalRange elements) override { inner_.wrote_values(elements); }
  void read_moments(CanonicalRange elements) override { inner_.read_moments(elements); }
  void wrote_moments(CanonicalRange elements) override { inner_.wrote_moments(elements); }
  InnerStep train_step(StepIndex t) override { return inner_.train_step(t); }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    return inner_.gradients(t, on_ready);
  }
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override {
    return inner_.gradient(parameter);
  }
  double apply_gradients(StepIndex t) override { return inner_.apply_gradients(t); }
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override {
    return inner_.loss(batch, source);
  }
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override {
    return inner_.train_loss(t, share, source);
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return inner_.learning_rate(t); }
  [[nodiscard]] AdamSettings adam_settings() const override { return inner_.adam_settings(); }
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override {
    return inner_.adam_moments(parameter);
  }
  void reset_optimizer() override { inner_.reset_optimizer(); }
  void save(StateWriter& writer) const override { inner_.save(writer); }
  void load(StateReader& reader) override { inner_.load(reader); }

 protected:
  InnerLoop& inner_;
};

}  // namespace isthmus::outer
