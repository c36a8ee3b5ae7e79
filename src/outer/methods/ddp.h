// SPDX-License-Identifier: Apache-2.0
// Data parallel training, the baseline: the mean gradient of all workers, exchanged every step,
// then one inner optimizer update on it (clipping included). Buckets go out while the backward pass
// runs. Rounds commit every OuterOptions::commit_every steps and at the last one; between, results
// are used as soon as they are whole and their digests join the next commit.
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

  /// For a method that is ddp in its first steps: commits what steps up to `last` left open, and
  /// goes on after step `last` of a checkpoint of its own.
  void commit_open_rounds(StepIndex last);
  /// ... that may be taken back.
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

  std::string method_;
  InnerLoop& inner_;
  Exchange& exchange_;
  std::shared_ptr<const Codec> codec_;  // co-owned by the rounds in flight
  ReductionKind kind_;
  std::int64_t commit_every_;
  Duration patience_;
  std::vector<Bucket> buckets_;
  std::vector<ErrorFeedback> residuals_;  // by bucket, where the codec asks for error feedback
  std::vector<bool> ready_;               // by parameter: its gradient of this step is final
  std::vector<Ticket> tickets_;           // of the buckets launched in this step, in order
  StepIndex steps_;
};

}  // namespace isthmus::outer
