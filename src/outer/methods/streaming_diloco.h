// SPDX-License-Identifier: Apache-2.0
// Streaming DiLoCo (arXiv:2501.18512 Alg. 2) in general form; DiLoCo (arXiv:2311.08105 Alg. 1) and
// local SGD are configurations of it: one fragment, no overlap, alpha 0.
//   each inner step t:
//     theta_m <- InnerOpt(theta_m)
//     fragments with t = offset_p (mod H):       Delta_m,p = anchor_p - theta_m,p ; launch its mean
//     fragments sent at t - tau:                  anchor_p <- OuterOpt(anchor_p, mean Delta_p)
//                                                 theta_m,p <- alpha theta_m,p + (1 - alpha)
//                                                 anchor_p
// With late = "slip" a round whose result is not there at t - tau is applied after the first later
// step that finds it there, at the latest before its fragment is sent again: then it is waited for.
// Anchors are functions of the order of each fragment's rounds, which stays as it is.
// Where weights and fragments are on a device, what a step sends and applies goes on beside the
// next one or the one before it: a contribution is encoded and given away while the next step is
// computed, and a result that is there before the end of the step that it is due at comes to the
// device before. No bit depends on it: a send is decided (its norm looked at, what is unfit given
// up) before anybody else sees or changes the local values, and the passes that were queued before
// it was are queued again where it changed them.
// Deviation from the paper's text: Delta is against the last outer result before mixing (shared by
// all), not against the worker's own mixed value; torchft and MaxText do the same.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "isthmus/outer.h"
#include "kernels/cuda/resident_values.h"
#include "outer/parts/late_rounds.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/outer_fragment.h"
#include "outer/parts/own_work.h"
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class StreamingDiLoCo final : public OuterStrategy, public LateRounds, public CarriesWork {
 public:
  /// `make` says where the fragments are kept; `values`, borrowed: on a device, beside whose steps
  /// the outer loop then goes on (null: nowhere).
  StreamingDiLoCo(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange,
                  const FragmentMaker& make, cuda::ResidentValues* values = nullptr);
  ~StreamingDiLoCo() override;
  StreamingDiLoCo(const StreamingDiLoCo&) = delete;
  StreamingDiLoCo& operator=(const StreamingDiLoCo&) = delete;

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] StepIndex next_use() const override;
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;
  [[nodiscard]] std::vector<RoundReport> apply_late() override;
  [[nodiscard]] OwnWork own_work() const override;
  [[nodiscard]] std::span<const Fragment> fragments() const override { return settings_.fragments; }
  [[nodiscard]] bool carries() const override {
    return settings_.carry == LostContribution::kCarry;
  }
  [[nodiscard]] Kept carry(const OwnWork& work) override;

 private:
  /// Where a parameter's anchor lies.
  struct Place {
    std::size_t fragment = 0;
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  /// What goes on beside the inner loop's step, as the loop sees it.
  class Beside final : public cuda::BesideStep {
   public:
    explicit Beside(StreamingDiLoCo& outer) : outer_(outer) {}
    [[nodiscard]] bool passes_are_queued() noexcept override;
    void step_is_queued(StepIndex t) noexcept override;
    void values_are_asked_for() noexcept override;

   private:
    StreamingDiLoCo& outer_;
  };
  /// An outer gradient that is on its way to the host.
  struct Sending {
    Sync sync;
    bool decided = false;
  };

  void send(const Sync& sync);
  /// Looks at the norm of what is being sent and queues its encoding. RETURNS: whether local values
  /// have changed.
  bool decide_send() const;
  /// ... and gives it to the exchange. Both do nothing where nothing is being sent.
  void finish_send() const;
  /// What a contribution that is not fit takes along.
  void give_up_unfit(FragmentId id, double norm, bool fit) const;
  void prepare(StepIndex t);
  /// Does the work, whose failure, if any, waits for the end of the step.
  void keep_failure(const std::function<void()>& work) noexcept;
  void throw_what_failed_beside() const;
  /// Settles and applies what is due by `due`, oldest first, waiting for it or not; it is step
  /// `now`.
  void apply_due(StepIndex due, LateRound late, StepIndex now, std::vector<RoundReport>& reports);
  [[nodiscard]] RoundReport apply(const Settled& round, StepIndex now);
  void settle_residual(const Settled& round);
  /// What is left to do where this worker's contribution was not counted.
  void apply_without_own(const Settled& round);
  [[nodiscard]] OuterFragment& state(FragmentId id) const;

  FragmentedSettings settings_;
  InnerLoop& inner_;
  std::vector<std::unique_ptr<OuterFragment>> fragments_;
  std::vector<Place> places_;  // by parameter
  // What is being sent counts as sent: whoever asks, `save` too, finishes it.
  mutable Rounds rounds_;
  mutable NormGuard guard_;
  mutable std::optional<Sending> sending_;
  mutable std::exception_ptr failed_beside_;
  Beside beside_{*this};
  cuda::ResidentValues* values_;  // null: nothing goes on beside a step
  StepIndex steps_;
  StepIndex trained_;  // the last inner step: `steps_`, or the one whose round has failed
};

}  // namespace isthmus::outer
