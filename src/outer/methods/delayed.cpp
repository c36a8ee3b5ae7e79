// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/delayed.h"

#include <utility>

namespace isthmus::outer {

void Delayed::end_round() {
  const std::optional<Settled> before = receive();  // mean Delta^(t-1)
  OuterGradient delta = outer_gradient(before);     // Delta^t, against the anchor of this round
  apply(before);
  launch(std::move(delta), window_weight());
}

void Delayed::drain() { apply(receive()); }

void Delayed::apply(const std::optional<Settled>& before) {
  if (before && !before->mean.empty()) {
    state().step(before->mean);
  }
  state().merge(0);
}

}  // namespace isthmus::outer
