// SPDX-License-Identifier: Apache-2.0
// Streaming DiLoCo (arXiv:2501.18512 Alg. 2) in general form; DiLoCo (arXiv:2311.08105 Alg. 1) and
// local SGD are configurations of it: one fragment, no overlap, alpha 0.
//   each inner step t:
//     theta_m <- InnerOpt(theta_m)
//     fragments with t = offset_p (mod H):       Delta_m,p = anchor_p - theta_m,p ; launch its mean
//     fragments sent at t - tau:                  anchor_p <- OuterOpt(anchor_p, mean Delta_p)
//                                                 theta_m,p <- alpha theta_m,p + (1 - alpha)
//                                                 anchor_p
// With late = "slip" a round without a result at t - tau is applied after the first later step that
// finds its result. It is waited for and applied at the latest just before its fragment is sent
// again. Anchors depend only on the order of each fragment's rounds, which does not change.
// If weights and fragments are on a device, sends and applies overlap inner steps. A contribution
// is encoded and sent while the next step is computed. A result that arrives before the end of the
// step at which it is due is copied to the device before that end. No bit depends on the overlap:
// the decision to send (check of the norm; dropping an unfit contribution) is made before other
// code reads or changes the local values, and passes that were queued before the decision are
// queued again if it changed the values.
// Deviation from the paper's text: Delta is relative to the last outer result before mixing (shared
// by all workers), not to the worker's own mixed value; torchft and MaxText do the same.
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
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"
#include "outer/parts/uncommitted_delta.h"

namespace isthmus::outer {

class StreamingDiLoCo final : public OuterStrategy, public LateRounds, public CarriesWork {
 public:
  /// `make` decides where fragments are kept. `values`, borrowed: the weights on a device whose
  /// steps the outer loop overlaps; null: no overlap.
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
  [[nodiscard]] UncommittedDelta uncommitted_delta() const override;
  [[nodiscard]] std::span<const Fragment> fragments() const override { return settings_.fragments; }
  [[nodiscard]] bool carries() const override {
    return settings_.carry == LostContribution::kCarry;
  }
  [[nodiscard]] Kept carry(const UncommittedDelta& work) override;

 private:
  /// Position of a parameter's anchor.
  struct Place {
    std::size_t fragment = 0;
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  /// The hooks by which the inner loop's step lets outer work overlap.
  class Beside final : public cuda::OverlapHooks {
   public:
    explicit Beside(StreamingDiLoCo& outer) : outer_(outer) {}
    [[nodiscard]] bool passes_are_queued() noexcept override;
    void step_is_queued(StepIndex t) noexcept override;
    void values_are_asked_for() noexcept override;

   private:
    StreamingDiLoCo& outer_;
  };
  /// An outer gradient on its way from the device to the host.
  struct Sending {
    Sync sync;
    bool decided = false;
  };

  void send(const Sync& sync);
  /// Reads the norm of the gradient in `sending_` and queues its encoding. RETURNS: true if local
  /// values have changed. Does nothing if nothing is being sent.
  bool decide_send() const;
  /// decide_send, then gives the encoding to the exchange. Does nothing if nothing is being sent.
  void finish_send() const;
  /// Drops the work of a contribution that is not fit: resets the fragment's local values to the
  /// anchor, or those of all fragments and the optimizer if `norm` is not finite.
  void give_up_unfit(FragmentId id, double norm, bool fit) const;
  void prepare(StepIndex t);
  /// Runs `work` and keeps its exception, which is thrown at the end of the step.
  void keep_failure(const std::function<void()>& work) noexcept;
  void throw_what_failed_beside() const;
  /// Settles and applies the rounds due by `due`, oldest first, waiting for late ones or not; `now`
  /// is the current step.
  void apply_due(StepIndex due, LateRound late, StepIndex now, std::vector<RoundReport>& reports);
  [[nodiscard]] RoundReport apply(const Settled& round, StepIndex now);
  void settle_residual(const Settled& round);
  /// Completes a round in which this worker's contribution was not counted.
  void apply_without_own(const Settled& round);
  [[nodiscard]] OuterFragment& state(FragmentId id) const;

  FragmentedSettings settings_;
  InnerLoop& inner_;
  std::vector<std::unique_ptr<OuterFragment>> fragments_;
  std::vector<Place> places_;  // by parameter
  // A gradient in `sending_` counts as sent: every reader, `save` included, finishes the send
  // first.
  mutable Rounds rounds_;
  mutable NormGuard guard_;
  mutable std::optional<Sending> sending_;
  mutable std::exception_ptr failed_beside_;
  Beside beside_{*this};
  cuda::ResidentValues* values_;  // null: no overlap with steps
  StepIndex steps_;
  StepIndex trained_;  // the last inner step: `steps_`, or a later one if its round failed
};

}  // namespace isthmus::outer
