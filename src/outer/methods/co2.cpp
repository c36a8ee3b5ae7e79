// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/co2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "outer/parts/flat_view.h"

namespace isthmus::outer {

void Co2::end_round() {
  std::optional<Settled> before = receive();     // mean Delta^(t-1)
  OuterGradient delta = outer_gradient(before);  // Delta^t, against x_t
  apply(std::move(before));
  launch(std::move(delta), window_weight());
}

void Co2::drain() { apply(receive()); }

void Co2::apply(std::optional<Settled> before) {
  const double rate = inner().learning_rate(steps());
  highest_rate_ = std::max(highest_rate_, rate);
  if (before && !before->mean.empty()) {
    moved_ = co2_step(settings().optimizer, staleness_penalty(*before), options_.clip,
                      state().anchor(), before->mean, state().momentum());
  } else {
    moved_ = 0;
  }
  state().merge(0);  // x_(t+1) is where the next round starts
}

float Co2::staleness_penalty(const Settled& before) const {
  switch (options_.penalty) {
    case StalenessPenalty::kNone:
      return 1;
    case StalenessPenalty::kConstant:
      return options_.constant;
    case StalenessPenalty::kGapAware:
      break;
  }
  const double excursion = before.report.delta_norm;
  if (moved_ == 0 || excursion == 0) {
    return 1;
  }
  const double rate = inner().learning_rate(steps());
  const double rates = rate > 0 ? highest_rate_ / rate : 1;
  return static_cast<float>(std::min(1 + rates * moved_ / excursion,
                                     static_cast<double>(std::numeric_limits<float>::max())));
}

void Co2::save(StateWriter& writer) const {
  OneRoundBehind::save(writer);
  writer.real("moved", moved_);
  writer.real("highest_rate", highest_rate_);
}

void Co2::load(StateReader& reader) {
  OneRoundBehind::load(reader);
  moved_ = reader.real("moved");
  highest_rate_ = reader.real("highest_rate");
}

double co2_step(const kernels::OuterStep& step, float penalty, float clip, std::span<float> x,
                std::span<float> d, std::span<float> m) {
  const float bound = clip > 0 ? clip : std::numeric_limits<float>::infinity();
  std::array<float, kTileValues> moves;
  double squares = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, x.size() - begin);
    float* const value = x.data() + begin;
    float* const fresh = d.data() + begin;
    for (std::size_t i = 0; i < n; ++i) {
      fresh[i] /= penalty;
    }
    const float* momentum = fresh;
    if (!m.empty()) {
      float* const stored = m.data() + begin;
      for (std::size_t i = 0; i < n; ++i) {
        stored[i] = step.mu * stored[i] + fresh[i];
      }
      momentum = stored;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const float next = value[i] - step.eta * std::clamp(momentum[i], -bound, bound);
      moves[i] = next - value[i];
      value[i] = next;
    }
    squares += sum_of_squares(std::span(moves).first(n));
  }
  return std::sqrt(squares);
}

}  // namespace isthmus::outer
