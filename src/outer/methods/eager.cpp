// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/eager.h"

#include <algorithm>
#include <utility>

namespace isthmus::outer {

void Eager::end_round() {
  std::optional<Settled> before = receive();     // mean Delta^(t-1)
  OuterGradient delta = outer_gradient(before);  // Delta^t, against this worker's anchor
  std::vector<float> g = stale_part(std::move(before));
  if (delta.fit) {
    add_fresh(g);
  }
  state().step(g);
  state().merge(0);
  // The formula's mean is a plain one: own parts have to be 1/|S| and 1/M.
  launch(std::move(delta), 1);
}

void Eager::settle_last() {
  std::optional<Settled> before = receive();
  if (!before) return;
  const std::vector<float> g = stale_part(std::move(before));
  // Of one worker nothing is left, and the momentum alone is no round.
  if (std::ranges::all_of(g, [](float value) { return value == 0; })) return;
  state().step(g);
  state().merge(0);
}

void Eager::close_round() {
  std::optional<Settled> before = receive();
  OuterGradient delta = outer_gradient(before);
  const bool fit = delta.fit;
  std::vector<float> g = stale_part(std::move(before));
  launch(std::move(delta), 1);
  const std::optional<Settled> last = receive();
  if (last && !last->mean.empty()) {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] += last->mean[i];
  } else if (fit) {
    add_fresh(g);
  }
  state().step(g);
  state().merge(0);
}

std::vector<float> Eager::stale_part(std::optional<Settled> before) {
  std::vector<float> g(state().size());
  if (!before) return g;
  if (!before->mean.empty()) {
    g = std::move(before->mean);
  }
  take_out_stale(*before, g);
  return g;
}

// A window that is lost for good is taken back here too, where it entered as a fresh part.
void Eager::take_out_stale(const Settled& before, std::vector<float>& g) const {
  const bool rolled_back = before.lost && settings().carry == LostContribution::kRollback;
  if (!before.report.counted && !rolled_back) {
    return;
  }
  const int share = before.report.counted ? before.report.members : exchange().members();
  const std::vector<float> stale = own_part(before);
  for (std::size_t i = 0; i < g.size(); ++i) {
    g[i] -= stale[i] / static_cast<float>(share);
  }
}

void Eager::add_fresh(std::vector<float>& g) {
  const auto workers = static_cast<float>(exchange().members());
  state().for_each(
      [&](std::size_t begin, std::span<const float> anchor, std::span<const float> local) {
        for (std::size_t i = 0; i < local.size(); ++i) {
          g[begin + i] += (anchor[i] - local[i]) / workers;
        }
      });
}

}  // namespace isthmus::outer
