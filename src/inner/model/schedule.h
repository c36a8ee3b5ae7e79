// SPDX-License-Identifier: Apache-2.0
// Learning rate as a pure function of the shared step clock, so a run resumes anywhere.
//
// t = 1 .. T counts steps of a cycle (T: length of the run, or of the interval between two re-warm
// points), W is the warm-up, D the last phase, f the floor as a share of the peak, c = (1 + f) / 2.
// Every schedule is multiplied by min(1, t / W) for W >= 1; W = 0 is the full rate at the first
// step.
//
// - constant: 1
// - linear: 1 - (1 - f) u, where u = (t - w) / (T - w) in [0, 1] and w = max(W, 1)
// - cosine: f + (1 - f) (1 + cos(pi u)) / 2, the same u
// - wsd: 1 up to T - D, then 1 - (1 - f) (t - (T - D)) / D
// - infinite: cosine from 1 to c over the D steps after the warm-up, then c up to T - D, then
//   c (f / c)^((t - (T - D)) / D) (Ibrahim et al. arXiv:2403.08763 §4)
// - inverse-sqrt: sqrt(w / max(t, w))
//
// so linear, cosine and wsd reach f exactly at t = T; past T they stay there. A re-warm point r
// starts a new cycle whose step 1 is step r of the run.
#pragma once

#include <cstdint>
#include <vector>

#include "isthmus/config.h"
#include "isthmus/types.h"

namespace isthmus {

class LearningRateSchedule {
 public:
  /// THROWS: ConfigError naming the key when a name is unknown, wsd or infinite has no decay, or
  /// the phases of a cycle do not fit into it.
  LearningRateSchedule(const InnerConfig& config, std::int64_t total_steps);

  /// Rate of step t >= 1. DETERMINISM: a function of t alone.
  [[nodiscard]] double at(StepIndex t) const;

 private:
  enum class Kind { kConstant, kLinear, kCosine, kWsd, kInfinite, kInverseSqrt };
  static Kind parse(const std::string& name);
  [[nodiscard]] bool has_last_phase() const;
  void check_cycles() const;
  [[nodiscard]] double share(double t, double cycle) const;

  Kind kind_;
  double peak_;
  double floor_;
  double warmup_;
  double decay_;
  std::vector<std::int64_t> cycle_begins_;  // first step of each cycle, ascending from 1
  std::int64_t total_steps_;
};

}  // namespace isthmus
