// SPDX-License-Identifier: Apache-2.0
// What the outer loop keeps of one fragment: the anchor (the last outer-optimizer result, before
// mixing, equal on all workers), the momentum, and this worker's residual where the codec asks for
// error feedback. Local values stay in the inner loop's tensors.
// Memory: 4 bytes an element for the anchor, 4 more with momentum and again where that is delayed,
// 4 more with a residual and again while that is kept. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/state_memory.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/contribution_sample.h"
#include "outer/flat_view.h"
#include "quant/error_feedback.h"

namespace isthmus::outer {

/// An outer gradient, encoded.
struct OuterGradient {
  Encoded encoded;
  double norm = 0;  // L2, before the codec
  bool fit = true;  // to be counted; see outer/norm_guard.h
  ContributionSample sample = {};
};

class FragmentState {
 public:
  /// The anchor starts as the parameters stand. Borrows the loop, whose host values of this
  /// fragment alone are asked for and written. `feedback_decay`: share of the residual that comes
  /// back each time.
  FragmentState(Fragment fragment, InnerLoop& inner, const kernels::OuterStep& optimizer,
                bool with_feedback, float feedback_decay = 1);

  /// Whether an outer gradient of that norm is fit to be counted.
  using Accepts = std::function<bool(double norm)>;
  /// Delta = anchor - local, encoded tile by tile under the round's key; with `more` of the same
  /// size added, if not empty. Where the codec asks for error feedback, what earlier encodings lost
  /// goes along, unless the gradient is not fit: what is not sent must not count as sent.
  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts,
                                             std::span<const float> more = {});
  /// An outer gradient that was encoded and not counted, where local values hold its work no more:
  /// it is in the residual again, as if it had not been sent. Without error feedback it is gone.
  /// THROWS: RunError when a resumed round's bytes do not decode.
  void take_back(const Codec& codec, const Encoded& sent);
  /// For an outer gradient whose work stays in the local values while it travels, so that it can be
  /// unsent: before it is encoded, keeps the residual; then, once its fate is known, either forgets
  /// what was kept, or goes back to it: the next outer gradient holds that work again, and a
  /// residual of its encoding would count it twice. Nothing without error feedback.
  void keep_residual();
  void forget_kept_residual() { kept_residual_.reset(); }
  /// RETURNS: whether one was kept.
  bool recall_residual();
  /// local := anchor, and nothing has been lost in an encoding.
  void forget_own_work();
  /// Calls `piece(begin, anchor, local)` for every stretch in which both are contiguous, in order.
  void for_each(const std::function<void(std::size_t begin, std::span<const float> anchor,
                                         std::span<const float> local)>& piece) const;
  /// anchor := OuterOpt(anchor, mean).
  void step(std::span<const float> mean);
  /// local := alpha local + (1 - alpha) anchor; alpha 0 copies, alpha 1 leaves local alone, else
  /// both products and the sum are rounded once.
  void merge(float alpha);
  /// anchor := OuterOpt(anchor, mean) and local := local + (anchor_new - anchor_old): what local
  /// holds beyond the anchor stays beyond it.
  void step_and_rebase(std::span<const float> mean);

  /// Anchor, momentum and residual, under the fragment's number.
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  [[nodiscard]] const Fragment& fragment() const { return fragment_; }
  [[nodiscard]] std::size_t size() const { return anchor_.size(); }
  [[nodiscard]] std::span<float> anchor() { return anchor_.span(); }
  [[nodiscard]] std::span<const float> anchor() const { return anchor_.span(); }
  [[nodiscard]] std::span<float> momentum() { return momentum_.span(); }
  [[nodiscard]] std::span<const float> momentum() const { return momentum_.span(); }

 private:
  /// How a walk over the fragment touches its arrays; none: not at all.
  struct Touched {
    std::optional<StateUse> local, anchor, momentum, residual;
  };
  [[nodiscard]] StateWalk::Ranges ranges(Touched touched) const;
  /// From the inner loop, before local values are looked at.
  void fetch_local() const;
  /// `piece` writes all local values; those it found there it wants to know only if `reads`.
  void change_local(bool reads,
                    const std::function<void(std::size_t begin, std::span<const float> anchor,
                                             std::span<float> local)>& piece);

  Fragment fragment_;
  InnerLoop& inner_;
  std::vector<CanonicalRange> elements_;  // of the fragment, neighbours joined
  kernels::OuterStep optimizer_;
  FlatView local_;
  StateArray anchor_;
  StateArray momentum_;
  StateArray summed_;               // delayed Nesterov: what the momentum has yet to take in,
  std::int64_t summed_rounds_ = 0;  // and of how many rounds
  std::optional<ErrorFeedback> feedback_;
  std::optional<StateArray> kept_residual_;
};

}  // namespace isthmus::outer
