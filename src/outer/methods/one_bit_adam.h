// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam (Tang et al. 2021, arXiv:2102.02888 Alg. 1): Adam on the mean gradient until its
// variance is stable, then momentum SGD under that variance, frozen, with a compressed mean of the
// momentum.
//   warm-up, t <= T_w:  ddp, AdamW
//   after step T_w:     v frozen; elements with v = 0 are masked
//   t > T_w, worker i:  m_i = b1 m + (1 - b1) g_i            g_i its own gradient, clipped alone
//                       m   = CompressedMean(m_i)            the same on all workers
//                       x  <- x - lr (m / (sqrt(v) + eps) + wd x)
//
// T_w: a step, or the rule of the paper: every D = 1 / (1 - b2) steps, once the learning rate no
// longer rises, |v_(t-D)|_1 / |v_t|_1 >= 0.96.
// bias_correction: v is divided by 1 - b2^T_w once, m by 1 - b1^t each step, as AdamW does; without
// it (DeepSpeed's form) neither is divided, in the warm-up too.
// Masked elements had a zero gradient throughout the warm-up. They are not sent, so they have no
// sign, no momentum and no residual; a later gradient of theirs is not used. `variance_floor`
// raises the smallest variances to a share of their tensor's mean, since an element with v near
// zero would step by scale / eps.
// One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outer/methods/ddp.h"
#include "outer/parts/compressed_mean.h"
#include "outer/parts/frozen_momentum.h"
#include "outer/parts/settings.h"
#include "outer/parts/uncorrected_adam.h"

namespace isthmus::outer {

class OneBitAdam final : public OuterStrategy {
 public:
  /// device: the state behind `inner`, on which the compressed stage is then computed; if memory
  /// for it is lacking at the freeze, which is logged, the host computes. Null: the host computes.
  /// THROWS: ConfigError when the inner optimizer is not AdamW; as its loop's adam_moments and as
  /// frozen_momentum_on_device.
  OneBitAdam(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
             Exchange& exchange, std::size_t bucket_values = kBucketValues,
             cuda::ResidentAdam* device = nullptr);

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  void commit() override { warm_up_.commit_retractable(steps_); }
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  /// REQUIRES: the inner loop's moments are loaded already; the mask is derived from them.
  void load(StateReader& reader) override;
  void forget_own_work() override;

  /// Last step of the warm-up; absent during the warm-up.
  [[nodiscard]] std::optional<StepIndex> frozen_at() const { return frozen_at_; }

 private:
  [[nodiscard]] StepReport compressed_step(StepIndex t);
  [[nodiscard]] bool variance_is_stable(StepIndex t);
  [[nodiscard]] double variance_norm() const;
  void freeze(StepIndex t);
  void find_active_lanes();
  [[nodiscard]] Identity identity() const;

  BucketSettings settings_;
  OneBitAdamOptions options_;
  InnerLoop& inner_;
  Exchange& exchange_;
  std::size_t bucket_values_;
  AdamSettings adam_;
  UncorrectedAdam uncorrected_;  // the warm-up's inner loop without bias correction
  Ddp warm_up_;
  StepIndex steps_;
  double variance_before_ = 0;  // |v|_1 of D steps ago; 0: not taken yet
  std::optional<StepIndex> frozen_at_;
  std::int64_t masked_lanes_ = 0;
  std::vector<Bucket> buckets_;               // elements with a variance, once frozen
  std::unique_ptr<FrozenMomentum> momentum_;  // used once frozen
  std::optional<CompressedMean> mean_;
};

}  // namespace isthmus::outer
