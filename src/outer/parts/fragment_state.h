// SPDX-License-Identifier: Apache-2.0
// The outer state of one fragment in the memory of the host: anchor, momentum and residual
// (outer_fragment.h has the interface). Local values stay in the inner loop's tensors. Memory: 4
// bytes an element for the anchor; 4 for a momentum, and 4 for the sum of delayed Nesterov; 4 for a
// residual, and 4 while a residual is saved (keep_residual). Owned by a strategy; one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/state/state_memory.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/outer_fragment.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::outer {

struct FragmentedSettings;

class FragmentState final : public OuterFragment {
 public:
  /// The anchor starts as the current parameters. Borrows the loop; reads and writes only host
  /// values of this fragment. `feedback_decay`: share of the residual that is added again each
  /// time.
  FragmentState(Fragment fragment, InnerLoop& inner, const kernels::OuterStep& optimizer,
                bool with_feedback, float feedback_decay = 1);

  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts) override {
    return outer_gradient(codec, key, accepts, {});
  }
  /// The same with `more` added to Delta. more: (n,), or empty.
  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts, std::span<const float> more);
  /// The same for a fragment that is part of a larger one. `accepts` receives its tiles' squared
  /// norms; the result has no norm. key: that of its first tile. sample: the sample of the larger
  /// fragment, starting at that tile.
  using Judge = std::function<bool(std::span<const double> squares)>;
  [[nodiscard]] OuterGradient encode_part(const Codec& codec, const EncodeKey& key,
                                          const Judge& accepts, ContributionSample sample,
                                          std::span<const float> more = {});
  void take_back(const Codec& codec, const Encoded& sent) override;
  void keep_residual() override;
  void forget_kept_residual() override { kept_residual_.reset(); }
  bool recall_residual() override;
  void forget_own_work() override;
  [[nodiscard]] std::vector<float> beyond() const override;
  void add_to_local(std::span<const float> values) override;
  /// Calls `piece(begin, anchor, local)` for every stretch in which both are contiguous, in order.
  void for_each(const std::function<void(std::size_t begin, std::span<const float> anchor,
                                         std::span<const float> local)>& piece) const;
  void use_rates(const kernels::OuterStep& now) override;
  void step(std::span<const float> mean) override;
  void merge(float alpha) override;
  void step_and_rebase(std::span<const float> mean) override;

  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  /// Moves the local values to `local`. local: (n,), borrowed.
  void put_local(std::span<float> local);

  [[nodiscard]] const Fragment& fragment() const override { return fragment_; }
  [[nodiscard]] std::size_t size() const { return anchor_.size(); }
  [[nodiscard]] std::span<float> anchor() { return anchor_.span(); }
  [[nodiscard]] std::span<const float> anchor() const override { return anchor_.span(); }
  [[nodiscard]] std::span<float> momentum() { return momentum_.span(); }
  [[nodiscard]] std::span<const float> momentum() const { return momentum_.span(); }

 private:
  // From the rule, since the size of the array does not tell: a lane may have no values.
  [[nodiscard]] bool has_momentum() const {
    return optimizer_.rule != kernels::OuterStepRule::kSgd;
  }
  [[nodiscard]] bool sums() const { return optimizer_.every > 1; }
  /// How a pass over the fragment uses its arrays; absent: not at all.
  struct Touched {
    std::optional<StateUse> local, anchor, momentum, residual;
  };
  [[nodiscard]] StateWalk::Ranges ranges(Touched touched) const;
  /// Gets local values from the inner loop before they are read.
  void fetch_local() const;
  /// `piece` writes all local values. `reads`: it also reads them first.
  void change_local(bool reads,
                    const std::function<void(std::size_t begin, std::span<const float> anchor,
                                             std::span<float> local)>& piece);

  Fragment fragment_;
  InnerLoop& inner_;
  std::vector<CanonicalRange> elements_;  // of the fragment, adjacent ranges merged
  kernels::OuterStep optimizer_;
  FlatView local_;
  StateArray anchor_;
  StateArray momentum_;
  StateArray summed_;               // delayed Nesterov: sum that the momentum has not taken in yet,
  std::int64_t summed_rounds_ = 0;  // and its number of rounds
  std::optional<ErrorFeedback> feedback_;
  std::optional<StateArray> kept_residual_;
};

/// A maker of such fragments, with these settings. Borrows `inner` for the lifetime of the
/// fragments.
[[nodiscard]] FragmentMaker fragments_on_host(const FragmentedSettings& settings, InnerLoop& inner);

}  // namespace isthmus::outer
