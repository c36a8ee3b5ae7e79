// SPDX-License-Identifier: Apache-2.0
// What the outer loop keeps of one fragment: the anchor (the last outer-optimizer result, before
// mixing, equal on all workers), the momentum, and this worker's residual where the codec asks for
// error feedback. Local values stay in the inner loop's tensors.
// Memory: 4 bytes an element for the anchor, 4 more with momentum, 4 more with a residual. One
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/flat_view.h"
#include "quant/error_feedback.h"

namespace isthmus::outer {

/// An outer gradient, encoded.
struct OuterGradient {
  Encoded encoded;
  double norm = 0;  // L2, before the codec
  bool fit = true;  // to be counted; see outer/norm_guard.h
};

class FragmentState {
 public:
  /// The anchor starts as the parameters stand. Borrows their memory. `feedback_decay`: share of
  /// the residual that comes back each time.
  FragmentState(Fragment fragment, std::span<const Parameter> parameters, bool with_momentum,
                bool with_feedback, float feedback_decay = 1);

  /// Whether an outer gradient of that norm is fit to be counted.
  using Accepts = std::function<bool(double norm)>;
  /// Delta = anchor - local, encoded tile by tile under the round's key; with `more` of the same
  /// size added, if not empty. Where the codec asks for error feedback, what earlier encodings lost
  /// goes along, unless the gradient is not fit: what is not sent must not count as sent.
  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts,
                                             std::span<const float> more = {});
  /// An outer gradient that was encoded and not counted: it is in the residual again, as if it had
  /// not been sent. Without error feedback it is gone.
  void take_back(const Codec& codec, const Encoded& sent);
  /// Calls `piece(begin, anchor, local)` for every stretch in which both are contiguous, in order.
  void for_each(const std::function<void(std::size_t begin, std::span<const float> anchor,
                                         std::span<float> local)>& piece);
  /// anchor := OuterOpt(anchor, mean).
  void step(const kernels::OuterStep& optimizer, std::span<const float> mean);
  /// local := alpha local + (1 - alpha) anchor; alpha 0 copies, alpha 1 leaves local alone, else
  /// both products and the sum are rounded once.
  void merge(float alpha);
  /// anchor := OuterOpt(anchor, mean) and local := local + (anchor_new - anchor_old): what local
  /// holds beyond the anchor stays beyond it.
  void step_and_rebase(const kernels::OuterStep& optimizer, std::span<const float> mean);

  /// Anchor, momentum and residual, under the fragment's number.
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

  [[nodiscard]] const Fragment& fragment() const { return fragment_; }
  [[nodiscard]] std::size_t size() const { return anchor_.size(); }
  [[nodiscard]] std::span<float> anchor() { return anchor_; }
  [[nodiscard]] std::span<const float> anchor() const { return anchor_; }
  [[nodiscard]] std::span<float> momentum() { return momentum_; }
  [[nodiscard]] std::span<const float> momentum() const { return momentum_; }

 private:
  Fragment fragment_;
  FlatView local_;
  std::vector<float> anchor_;
  std::vector<float> momentum_;
  std::optional<ErrorFeedback> feedback_;
};

}  // namespace isthmus::outer
