// SPDX-License-Identifier: Apache-2.0
// The schedule of 0/1 Adam: a function of the keys and the step alone, so that all workers compute
// it alike and a resumed run continues in it (in DeepSpeed a load restarts the intervals).
//   phase A, t <= var_freeze_step:  I = 2^floor(updates of the variance / var_update_scaler)
//     t = 0 (mod I): kVariance, else kCompressed
//   phase B, j steps after it:      J = min(local_step_clipper, 2^floor(j / local_step_scaler))
//     t = 0 (mod J): kSync, else kLocal
#pragma once

#include <cstdint>

#include "isthmus/outer.h"

namespace isthmus::outer {

enum class ZeroOneStep {
  kVariance,    // uncompressed mean gradient, into momentum and variance
  kCompressed,  // compressed mean gradient, into the momentum only
  kLocal,       // nothing is sent
  kSync,        // a local step, then the compressed mean of the sum
};

/// Consecutive steps of one interval between syncs.
struct ZeroOneStretch {
  std::int64_t steps = 0;
  std::int64_t variance = 0;    // ZeroOneStep::kVariance among them
  std::int64_t compressed = 0;  // kCompressed
  std::int64_t syncs = 0;       // kSync
  std::int64_t interval = 0;    // J of local steps; 0: of phase A
  std::int64_t last_sent = 0;   // the run's step of the last that is not kLocal; 0: all are
};

/// A value; one thread.
class ZeroOneSchedule {
 public:
  explicit ZeroOneSchedule(const ZeroOneAdamOptions& options) : options_(options) {}

  /// RETURNS: the kind of step `steps` + 1; advances by one step.
  ZeroOneStep next();
  /// The next steps of one interval, at most `most` of them; advances by as many. There are about
  /// as many stretches as intervals can be doubled. REQUIRES: most >= 1.
  ZeroOneStretch next_stretch(std::int64_t most);
  /// The state after the first `step` steps.
  void go_on_from(StepIndex step);

 private:
  ZeroOneAdamOptions options_;
  std::int64_t steps_ = 0;
  std::int64_t variance_interval_ = 1;  // I
  std::int64_t variance_updates_ = 0;
  std::int64_t sync_interval_ = 1;  // J
};

}  // namespace isthmus::outer
