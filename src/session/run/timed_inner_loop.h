// SPDX-License-Identifier: Apache-2.0
// An InnerLoop on the run's clock: every step is a compute region of the runtime and an event of
// the timeline. Under virtual time a step lasts what `StepClock` says; in real time, what it takes.
//
// Gradients that become ready during the backward pass are announced at the times at which a
// backward pass of that length would have them: the real work is done first, then its virtual
// duration is walked through. So ddp's overlap of exchange with backward is modelled without
// splitting the work.
#pragma once

#include <functional>
#include <utility>

#include "core/base/events.h"
#include "isthmus/inner_loop.h"
#include "isthmus/runtime.h"
#include "sim/pace_profile.h"

namespace isthmus::app {

/// Virtual duration of inner step t of one worker. Pure; ignored in real time.
using StepClock = std::function<Duration(StepIndex t)>;

/// Whether a worker of that pace takes inner step t: of the first t it has taken floor(t pace).
[[nodiscard]] bool takes_step(double pace, StepIndex t);

class TimedInnerLoop final : public InnerLoop {
 public:
  /// Borrows everything for its lifetime; `events` may be null.
  /// `pace`: share of the steps that are taken; the others are idle, see takes_step.
  TimedInnerLoop(InnerLoop& inner, Runtime& runtime, WorkerId worker, StepClock clock,
                 EventSink* events, double pace = 1);
  /// How fast the worker computes over virtual time, in the place of full speed always.
  void set_profile(PaceProfile profile) { profile_ = std::move(profile); }
  /// Steps of `train_step` that are idle too: asked before each that its pace would have it take.
  void set_skips(std::function<bool(StepIndex t)> skips) { skips_ = std::move(skips); }

  [[nodiscard]] std::span<const Parameter> parameters() const override;
  void read_values(CanonicalRange elements) override;
  void wrote_values(CanonicalRange elements) override;
  void read_moments(CanonicalRange elements) override;
  void wrote_moments(CanonicalRange elements) override;
  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  [[nodiscard]] std::span<float> gradient(std::size_t parameter) override;
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  /// A step's first share takes the step's whole virtual time: what the forward passes of a step
  /// take together is what the clock says of the step.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;
  [[nodiscard]] double learning_rate(StepIndex t) const override;
  [[nodiscard]] AdamSettings adam_settings() const override;
  [[nodiscard]] AdamMoments adam_moments(std::size_t parameter) override;
  void reset_optimizer() override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  /// Time spent in compute regions so far, on the runtime's clock; standing still is none of it.
  [[nodiscard]] Duration computed() const { return computed_; }

 private:
  void announce(const std::vector<std::size_t>& order, TimePoint begin, Duration duration,
                const GradientReady& on_ready);
  void note(TimePoint begin, StepIndex t);
  /// What work that takes `duration` at full speed takes when it begins at `begin`.
  [[nodiscard]] Duration lasting(TimePoint begin, Duration duration) const {
    return profile_.done(begin, duration) - begin;
  }

  InnerLoop& inner_;
  Runtime& runtime_;
  WorkerId worker_;
  StepClock clock_;
  EventSink* events_;
  double pace_;
  PaceProfile profile_;
  std::function<bool(StepIndex t)> skips_;  // empty: none
  Duration computed_{0};
  StepIndex loss_step_;  // of the last train_loss
};

}  // namespace isthmus::app
