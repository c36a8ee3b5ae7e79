// SPDX-License-Identifier: Apache-2.0
#include "session/run/anchor_mean.h"

#include <algorithm>
#include <utility>

namespace isthmus::app {

std::optional<OuterCopy> AnchorMean::lay_down(WorkerId rank, StepIndex t,
                                              const OuterStrategy& strategy,
                                              std::size_t parameters) {
  std::vector<std::vector<float>> own;
  for (std::size_t i = 0; i < parameters; ++i) {
    const std::span<const float> values = strategy.values(i);
    own.emplace_back(values.begin(), values.end());
  }
  Pending complete;
  {
    const std::lock_guard lock(mutex_);
    Pending& pending = pending_[t.value()];
    pending.anchors.resize(workers_);
    pending.anchors[static_cast<std::size_t>(rank.value())] = std::move(own);
    if (++pending.laid_down < workers_) {
      return std::nullopt;
    }
    complete = std::move(pending);
    pending_.erase(t.value());
  }
  const bool alike = std::ranges::all_of(
      complete.anchors, [&](const auto& each) { return each == complete.anchors.front(); });
  std::vector<std::vector<float>> mean = std::move(complete.anchors.front());
  if (alike) return OuterCopy(std::move(mean));
  for (std::size_t i = 0; i < parameters; ++i) {
    for (std::size_t k = 0; k < mean[i].size(); ++k) {
      for (std::size_t m = 1; m < workers_; ++m) {
        mean[i][k] += complete.anchors[m][i][k];
      }
      mean[i][k] /= static_cast<float>(workers_);
    }
  }
  return OuterCopy(std::move(mean));
}

}  // namespace isthmus::app
