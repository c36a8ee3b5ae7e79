// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam (Lu et al. 2022, arXiv:2202.06009 Alg. 1; DeepSpeed's onebit/zoadam.py). In phase A
// Adam's variance changes ever more rarely. In phase B the variance is frozen; workers take local
// steps, and their sum is exchanged as signs ever more rarely. No bias correction, as in the public
// code.
//   phase A, t <= var_freeze_step:
//     t = 0 (mod I):  g = mean_i g_i ;            v <- b2 v + (1 - b2) g^2
//     else:           g = CompressedMean(g_i)
//     m <- b1 m + (1 - b1) g ;  x <- x - lr (m / (sqrt(v) + eps) + wd x)
//   phase B, worker i; a is the x of the last sync, the same on all workers:
//     m_i <- b1 m_i + (1 - b1) g_i ;  u_i <- u_i + lr m_i ;  x_i <- x_i - lr m_i / (sqrt(v) + eps)
//     t = 0 (mod J):  u = CompressedMean(u_i) ;   m_i <- u / sum of lr since the last sync
//                     a <- a - u / (sqrt(v) + eps) - sum of lr * wd a ;  x_i <- a ;  u_i <- 0
// I and J: outer/parts/zero_one_schedule.h. The residuals of gradients are set to zero at A -> B,
// where the compressed means begin to carry sums of momenta.
// Deviations from the public code:
// - a is kept and x is reset to it. The public code subtracts u by arithmetic, and workers drift
//   apart by rounding.
// - Weight decay acts on a, at the syncs, and does not enter the momentum.
// - Elements without variance do not move (masked in phase B, as in 1bit-adam).
// - The smallest variances are raised at the freeze (variance_floor).
// - Each worker clips its own gradient when no mean exists.
// - Momentum changes with one worker too.
// - A local step with a gradient that is not finite is skipped.
// One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outer/methods/ddp.h"
#include "outer/parts/compressed_mean.h"
#include "outer/parts/settings.h"
#include "outer/parts/uncorrected_adam.h"
#include "outer/parts/zero_one_schedule.h"

namespace isthmus::outer {

class ZeroOneAdam final : public OuterStrategy {
 public:
  ZeroOneAdam(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
              Exchange& exchange, std::size_t bucket_values = kBucketValues);

  StepReport step() override;
  /// Syncs the local steps since the last sync.
  std::vector<RoundReport> finish() override;
  void commit() override { full_.commit_retractable(steps_); }
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  /// x in phase A, a in phase B.
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  /// REQUIRES: the inner loop's moments are loaded already; the mask is derived from them.
  void load(StateReader& reader) override;
  void forget_own_work() override;

 private:
  /// Phase B: local steps from one sync to the next.
  struct LocalPhase {
    std::vector<StateArray> anchor;  // a, by parameter
    std::vector<StateArray> moved;   // u, by parameter
    double lr_sum = 0;               // since the last sync
    StepIndex last_sync;
    bool partial = false;  // forget_own_work was called: the next sync only receives
  };

  [[nodiscard]] StepReport compressed_step(StepIndex t);
  [[nodiscard]] StepReport local_step(StepIndex t);
  [[nodiscard]] std::vector<RoundReport> synchronise(StepIndex t);
  void forget_movement(const Bucket& bucket);
  /// Begins phase B: freezes the variance; the syncs start from the current x.
  void begin_local_steps();
  /// Makes mean_ over the buckets.
  void make_mean();
  /// Computes the mask, and mean_ over the elements that are not masked.
  void find_active_lanes();
  [[nodiscard]] bool local() const { return !local_.anchor.empty(); }
  /// RETURNS: the factor that clips this worker's gradient; reports the norm.
  [[nodiscard]] float own_clip(StepReport& report);
  [[nodiscard]] Identity identity() const;

  BucketSettings settings_;
  ZeroOneAdamOptions options_;
  double variance_floor_;
  InnerLoop& inner_;
  Exchange& exchange_;
  std::size_t bucket_values_;
  AdamSettings adam_;
  UncorrectedAdam uncorrected_;
  Ddp full_;  // steps that update the variance
  ZeroOneSchedule schedule_;
  StepIndex steps_;
  std::vector<Bucket> buckets_;  // all elements in phase A, elements with variance in phase B
  std::optional<HostWorkerEnd> own_end_;
  std::optional<CompressedMean> mean_;  // the worker's end is own_end_
  LocalPhase local_;
};

}  // namespace isthmus::outer
