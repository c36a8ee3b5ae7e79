// SPDX-License-Identifier: Apache-2.0
// What 0/1 Adam does at each step: a function of the keys and the step alone, so that all workers
// derive it and a resumed run goes on in it (in DeepSpeed a load starts the intervals again).
//   phase A, t <= var_freeze_step:  I = 2^floor(updates of the variance / var_update_scaler)
//     t = 0 (mod I): kVariance, else kCompressed
//   phase B, j steps after it:      J = min(local_step_clipper, 2^floor(j / local_step_scaler))
//     t = 0 (mod J): kSync, else kLocal
#pragma once

#include <cstdint>

#include "isthmus/outer.h"

namespace isthmus::outer {

enum class ZeroOneStep {
  kVariance,    // mean gradient as it is, into momentum and variance
  kCompressed,  // mean gradient, compressed, into the momentum alone
  kLocal,       // nothing is sent
  kSync,        // a local step, then the compressed mean of what has accumulated
};

/// A value; one thread.
class ZeroOneSchedule {
 public:
  explicit ZeroOneSchedule(const ZeroOneAdamOptions& options) : options_(options) {}

  /// What step `steps` + 1 does; moves on by it.
  ZeroOneStep next();
  /// As after the first `step` steps. Time: O(step), nanoseconds each.
  void go_on_from(StepIndex step);
  /// J of the next step, where that is in phase B.
  [[nodiscard]] std::int64_t sync_interval() const { return sync_interval_; }

 private:
  ZeroOneAdamOptions options_;
  std::int64_t steps_ = 0;
  std::int64_t variance_interval_ = 1;  // I
  std::int64_t variance_updates_ = 0;
  std::int64_t sync_interval_ = 1;  // J
};

}  // namespace isthmus::outer
