// SPDX-License-Identifier: Apache-2.0
// An InnerLoop on the run's clock: every step is a compute region of the runtime and an event of
// the timeline. A step lasts as long as `StepClock` says in virtual time, and its real duration in
// real time.
//
// Gradients of the backward pass are announced at the times at which a backward pass of that length
// would produce them: the real work is done first, then its virtual duration passes. So ddp's
// overlap of exchange with backward is modelled without splitting the work.
#pragma once

#include <functional>
#include <utility>

#include "core/base/events.h"
#include "isthmus/inner_loop.h"
#include "isthmus/runtime.h"
#include "outer/parts/forwarding_inner_loop.h"
#include "sim/pace_profile.h"

namespace isthmus::app {

/// Virtual duration of inner step t of one worker. Pure; ignored in real time.
using StepClock = std::function<Duration(StepIndex t)>;

/// Whether a worker with that pace takes inner step t: it takes floor(t pace) of the first t steps.
[[nodiscard]] bool takes_step(double pace, StepIndex t);

class TimedInnerLoop final : public outer::ForwardingInnerLoop {
 public:
  /// Borrows everything for its lifetime; `events` may be null.
  /// `pace`: share of the steps that are taken; the others are idle, see takes_step.
  TimedInnerLoop(InnerLoop& inner, Runtime& runtime, WorkerId worker, StepClock clock,
                 EventSink* events, double pace = 1);
  /// The worker's speed over virtual time, instead of constant full speed.
  void set_profile(PaceProfile profile) { profile_ = std::move(profile); }
  /// Further idle steps of `train_step`: called before each step that the pace would take.
  void set_skips(std::function<bool(StepIndex t)> skips) { skips_ = std::move(skips); }

  InnerStep train_step(StepIndex t) override;
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override;
  double apply_gradients(StepIndex t) override;
  [[nodiscard]] double loss(const TokenBatch& batch, const ParameterSource& source) override;
  /// A step's first share takes the step's whole virtual time: the clock's duration covers all
  /// forward passes of the step.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override;

  /// Time spent in compute regions so far, on the runtime's clock, without pauses.
  [[nodiscard]] Duration computed() const { return computed_; }

 private:
  void announce(const std::vector<std::size_t>& order, TimePoint begin, Duration duration,
                const GradientReady& on_ready);
  void note(TimePoint begin, StepIndex t);
  /// The duration of work that begins at `begin` and takes `duration` at full speed.
  [[nodiscard]] Duration lasting(TimePoint begin, Duration duration) const {
    return profile_.done(begin, duration) - begin;
  }

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
