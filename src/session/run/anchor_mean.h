// SPDX-License-Identifier: Apache-2.0
// The outer parameters of a run whose workers hold anchors of their own (eager): the anchors' mean,
// element by element. Each worker lays down a copy and goes on; the last one to come gets the mean,
// so nobody waits, neither in real nor in virtual time.
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

  /// Any worker's thread. RETURNS: the mean of all workers' anchors after step t, to the last of
  /// them to come; nothing to the others. Summed in rank order in fp32, so it does not matter who
  /// comes last.
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
