// SPDX-License-Identifier: Apache-2.0
// The outer parameters of a run whose workers have separate anchors (eager, decoupled): the
// anchors' mean, element by element, or the anchors themselves where all are the same. Each worker
// leaves a copy and continues; the last worker gets the mean, so no worker waits, neither in real
// nor in virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::app {

/// A copy of outer parameters, by parameter.
class OuterCopy final : public ParameterSource {
 public:
  explicit OuterCopy(std::vector<std::vector<float>> values) : values_(std::move(values)) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return values_.at(parameter);
  }

 private:
  std::vector<std::vector<float>> values_;
};

class AnchorMean {
 public:
  explicit AnchorMean(int workers) : workers_(static_cast<std::size_t>(workers)) {}

  /// Any worker's thread. RETURNS: the mean of all workers' anchors after step t, to the last
  /// worker that calls; nothing to the others. Summed in worker order in fp32, so it does not
  /// matter which worker is last.
  [[nodiscard]] std::optional<OuterCopy> lay_down(WorkerId rank, StepIndex t,
                                                  const OuterStrategy& strategy,
                                                  std::size_t parameters);

 private:
  struct Pending {
    std::vector<std::vector<std::vector<float>>> anchors;  // by worker, by parameter
    std::size_t laid_down = 0;
  };
  const std::size_t workers_;
  std::mutex mutex_;
  std::map<std::int64_t, Pending> pending_;  // by step; guarded by mutex_
};

}  // namespace isthmus::app
