// SPDX-License-Identifier: Apache-2.0
#include "session/run/timed_inner_loop.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/step_shares.h"
#include "session/run/diverged.h"

namespace isthmus::app {
namespace {

Duration share_of(Duration whole, double share) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(whole.count()) * share));
}

}  // namespace

bool takes_step(double pace, StepIndex t) {
  constexpr double kRounding = 1e-9;  // of a pace like 0.1, ten times which is 1
  const auto taken = [&](std::int64_t steps) {
    return std::floor(static_cast<double>(steps) * pace + kRounding);
  };
  return taken(t.value()) > taken(t.value() - 1);
}

TimedInnerLoop::TimedInnerLoop(InnerLoop& inner, Runtime& runtime, WorkerId worker, StepClock clock,
                               EventSink* events, double pace)
    : ForwardingInnerLoop(inner),
      runtime_(runtime),
      worker_(worker),
      clock_(std::move(clock)),
      events_(events),
      pace_(pace) {}

InnerStep TimedInnerLoop::train_step(StepIndex t) {
  if (!takes_step(pace_, t) || (skips_ && skips_(t))) {
    return {.idle = true};
  }
  InnerStep result;
  const TimePoint begin = runtime_.clock().now();
  runtime_.compute(lasting(begin, clock_(t)), [&] { result = inner_.train_step(t); });
  note(begin, t);
  check_finite(t, result);
  return result;
}

InnerStep TimedInnerLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  const TimePoint begin = runtime_.clock().now();
  InnerStep result;
  if (!runtime_.simulated()) {
    runtime_.compute(clock_(t), [&] { result = inner_.gradients(t, on_ready); });
    check_finite(t, result);
  } else {
    std::vector<std::size_t> order;
    const Duration duration = clock_(t);
    runtime_.compute(lasting(begin, share_of(duration, kForwardShare)), [&] {
      result = inner_.gradients(t, [&](std::size_t parameter) { order.push_back(parameter); });
    });
    check_finite(t, result);
    announce(order, begin, duration, on_ready);
    runtime_.sleep_until(profile_.done(begin, duration));
  }
  note(begin, t);
  return result;
}

void TimedInnerLoop::announce(const std::vector<std::size_t>& order, TimePoint begin,
                              Duration duration, const GradientReady& on_ready) {
  if (!on_ready) {
    return;
  }
  std::int64_t total = 0;
  for (const Parameter& parameter : inner_.parameters()) {
    total += parameter.elements.size();
  }
  std::int64_t done = 0;
  for (const std::size_t parameter : order) {
    done += inner_.parameters()[parameter].elements.size();
    const double backward = static_cast<double>(done) / static_cast<double>(total);
    runtime_.sleep_until(
        profile_.done(begin, share_of(duration, kForwardShare + (1 - kForwardShare) * backward)));
    on_ready(parameter);
  }
}

void TimedInnerLoop::note(TimePoint begin, StepIndex t) {
  const TimePoint end = runtime_.clock().now();
  computed_ += end - begin - profile_.stood_still(begin, end);
  if (events_ != nullptr) {
    events_->record({.kind = EventKind::kCompute,
                     .worker = worker_,
                     .begin = begin,
                     .end = end,
                     .step = t.value()});
  }
}

double TimedInnerLoop::apply_gradients(StepIndex t) {
  double norm = 0;
  runtime_.compute(Duration{0}, [&] { norm = inner_.apply_gradients(t); });
  return norm;
}

double TimedInnerLoop::loss(const TokenBatch& batch, const ParameterSource& source) {
  double value = 0;
  runtime_.compute(Duration{0}, [&] { value = inner_.loss(batch, source); });
  return value;
}

InnerStep TimedInnerLoop::train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) {
  InnerStep result;
  const TimePoint begin = runtime_.clock().now();
  const Duration duration = t == loss_step_ ? Duration{0} : clock_(t);
  loss_step_ = t;
  runtime_.compute(lasting(begin, duration), [&] { result = inner_.train_loss(t, share, source); });
  note(begin, t);
  return result;
}

}  // namespace isthmus::app
