// SPDX-License-Identifier: Apache-2.0
// One fragment as a method sees it, wherever it is kept and whoever computes on it: the anchor (the
// last outer-optimizer result, before mixing, equal on all workers), the momentum, and this
// worker's residual where the codec asks for error feedback; local values are the inner loop's.
// FragmentState keeps it on the host, DeviceFragment (outer/place/device_fragment.h) on a device.
// DETERMINISM: the same bits, norms and encoded bytes everywhere. One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/parts/contribution_sample.h"

namespace isthmus::outer {

/// An outer gradient, encoded.
struct OuterGradient {
  Encoded encoded;
  double norm = 0;  // L2, before the codec
  bool fit = true;  // to be counted; see outer/parts/norm_guard.h
  ContributionSample sample = {};
};

/// The parts of a fragment's sync, where they can go on beside an inner step: what begins is queued
/// and returns, and a worker has one outer gradient on its way at a time.
class FragmentBeside {
 public:
  virtual ~FragmentBeside() = default;
  /// Delta of local values as they are now, and its norm. Until that is known local values of the
  /// fragment must stay.
  virtual void begin_gradient() = 0;
  /// Blocks until it is known.
  [[nodiscard]] virtual double gradient_norm() = 0;
  /// As outer_gradient encodes it, where its norm is `fit` to be counted or not.
  virtual void begin_encoding(const EncodeKey& key, bool fit) = 0;
  /// Blocks until the bytes are on the host.
  [[nodiscard]] virtual OuterGradient finish_encoding() = 0;
  /// What is to come soon, so that what it needs comes to the device now: what asks for the anchor,
  /// which every part does; `step` with `mean`, which stays as it is where it is until then.
  virtual void expect_anchor() = 0;
  virtual void expect_step(std::span<const float> mean) = 0;
};

class OuterFragment {
 public:
  virtual ~OuterFragment() = default;

  /// Whether an outer gradient of that norm is fit to be counted.
  using Accepts = std::function<bool(double norm)>;
  /// Delta = anchor - local, encoded tile by tile under the round's key. Where the codec asks for
  /// error feedback, what earlier encodings lost goes along, unless the gradient is not fit: what
  /// is not sent must not count as sent. Blocks until the bytes are on the host.
  [[nodiscard]] virtual OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                                     const Accepts& accepts) = 0;
  /// An outer gradient that was encoded and not counted, where local values hold its work no more:
  /// it is in the residual again, as if it had not been sent. Without error feedback it is gone.
  /// THROWS: RunError when a resumed round's bytes do not decode.
  virtual void take_back(const Codec& codec, const Encoded& sent) = 0;
  /// For an outer gradient whose work stays in the local values while it travels, so that it can be
  /// unsent: before it is encoded, keeps the residual; then, once its fate is known, either forgets
  /// what was kept, or goes back to it: the next outer gradient holds that work again, and a
  /// residual of its encoding would count it twice. Nothing without error feedback.
  virtual void keep_residual() = 0;
  virtual void forget_kept_residual() = 0;
  /// RETURNS: whether one was kept.
  virtual bool recall_residual() = 0;
  /// local := anchor, and nothing has been lost in an encoding.
  virtual void forget_own_work() = 0;
  /// (n,): local - anchor.
  [[nodiscard]] virtual std::vector<float> beyond() const = 0;
  /// local := local + values. values: (n,).
  virtual void add_to_local(std::span<const float> values) = 0;
  /// The rates of the outer steps to come. `now` has the rule, and the `every`, that the fragment
  /// was made with.
  virtual void use_rates(const kernels::OuterStep& now) = 0;
  /// anchor := OuterOpt(anchor, mean). mean: (n,).
  virtual void step(std::span<const float> mean) = 0;
  /// local := alpha local + (1 - alpha) anchor; alpha 0 copies, alpha 1 leaves local alone, else
  /// both products and the sum are rounded once.
  virtual void merge(float alpha) = 0;
  /// anchor := OuterOpt(anchor, mean) and local := local + (anchor_new - anchor_old): what local
  /// holds beyond the anchor stays beyond it.
  virtual void step_and_rebase(std::span<const float> mean) = 0;

  /// Anchor, momentum and residual, under the fragment's number, in the same form everywhere.
  virtual void save(StateWriter& writer) const = 0;
  virtual void load(StateReader& reader) = 0;

  /// The same fragment; null where its work blocks.
  [[nodiscard]] virtual FragmentBeside* beside() { return nullptr; }

  [[nodiscard]] virtual const Fragment& fragment() const = 0;
  /// On the host, right until the next call that changes it, and there until drop_anchor_copy.
  /// Blocks while it is fetched.
  [[nodiscard]] virtual std::span<const float> anchor() const = 0;
  /// Who has asked for the anchor looks at it no more. The default does nothing: it is kept there.
  virtual void drop_anchor_copy() {}
};

/// The canonical elements of a fragment, neighbours joined.
[[nodiscard]] std::vector<CanonicalRange> elements_of(const Fragment& fragment,
                                                      std::span<const Parameter> parameters);

/// Makes the fragments of one worker, in order, where they are to be kept.
using FragmentMaker = std::function<std::unique_ptr<OuterFragment>(const Fragment& fragment)>;

}  // namespace isthmus::outer
