// SPDX-License-Identifier: Apache-2.0
// Data parallel training, the baseline: each step averages the gradient over all workers, then
// makes one inner optimizer update (clipping included). The gradient is exchanged in buckets during
// the backward pass. A round's result is used as soon as its bytes are complete; every
// OuterOptions::commit_every steps, and at the last step, all workers compare the digests of the
// rounds since the last commit (commit).
#pragma once

#include <memory>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/buckets.h"
#include "outer/parts/settings.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::outer {

class Ddp final : public OuterStrategy {
 public:
  Ddp(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
      std::size_t bucket_values = kBucketValues);

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  void commit() override { commit_retractable(steps_); }
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;

  /// For methods that start as ddp. commit_open_rounds: commits all rounds up to step `last` that
  /// are still open. go_on_from: continues after step `last`, from that method's checkpoint.
  void commit_open_rounds(StepIndex last);
  /// As commit_open_rounds, if results may still be taken back.
  void commit_retractable(StepIndex last);
  void go_on_from(StepIndex last) { steps_ = last; }

 private:
  void commit_after(StepIndex last);
  void launch_ready(StepIndex t);
  void launch(std::size_t bucket, StepIndex t);
  [[nodiscard]] ErrorFeedback* residual_of(std::size_t bucket);
  [[nodiscard]] Reduced settle(const Ticket& ticket);
  [[nodiscard]] RoundReport take_mean(std::size_t bucket, StepIndex t);
  [[nodiscard]] Identity identity() const;

  BucketSettings settings_;
  InnerLoop& inner_;
  Exchange& exchange_;
  std::vector<Bucket> buckets_;
  std::vector<ErrorFeedback> residuals_;  // by bucket, if the codec asks for error feedback
  std::vector<bool> ready_;               // by parameter: its gradient of this step is final
  std::vector<Ticket> tickets_;           // of the buckets launched in this step, in order
  StepIndex steps_;
};

}  // namespace isthmus::outer
