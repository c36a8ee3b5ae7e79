// SPDX-License-Identifier: Apache-2.0
// One fragment as a method sees it, for any place of its state and arithmetic: the anchor (the last
// outer-optimizer result, before mixing, equal on all workers), the momentum, and this worker's
// residual if the codec asks for error feedback. Local values belong to the inner loop.
// FragmentState keeps it on the host, DeviceFragment (outer/place/device_fragment.h) on a device.
// DETERMINISM: the same bits, norms and encoded bytes everywhere. One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/parts/contribution_sample.h"

namespace isthmus::outer {

/// An outer gradient, encoded.
struct OuterGradient {
  Encoded encoded;
  double norm = 0;  // L2, before the codec
  bool fit = true;  // fit to be counted; see outer/parts/norm_guard.h
  ContributionSample sample = {};
};

/// THROWS: RunError where this worker's own contribution has not decoded. Its bytes come from a
/// checkpoint then, since a run decodes what it has encoded.
void check_own_contribution(const Expected<void, DecodeError>& decoded);

/// The parts of a fragment's sync that can overlap an inner step. Functions `begin_...` queue work
/// and return. A worker has at most one outer gradient in flight to the host.
class AsyncFragment {
 public:
  virtual ~AsyncFragment() = default;
  /// Begins Delta of the current local values, and its norm. The fragment's local values must not
  /// change until the norm is known.
  virtual void begin_gradient() = 0;
  /// Blocks until the norm is known.
  [[nodiscard]] virtual double gradient_norm() = 0;
  /// Begins the encoding of OuterFragment::outer_gradient; `fit`: result of the check of the norm.
  virtual void begin_encoding(const EncodeKey& key, bool fit) = 0;
  /// Blocks until the bytes are on the host.
  [[nodiscard]] virtual OuterGradient finish_encoding() = 0;
  /// Prefetch hints. expect_anchor: the anchor is used next (every part uses it). expect_step:
  /// step(mean) is next; `mean` must stay valid and unchanged until then.
  virtual void expect_anchor() = 0;
  virtual void expect_step(std::span<const float> mean) = 0;
};

class OuterFragment {
 public:
  virtual ~OuterFragment() = default;

  /// True if an outer gradient of this norm is fit to be counted.
  using Accepts = std::function<bool(double norm)>;
  /// Delta = anchor - local, encoded tile by tile under the round's key. If the codec asks for
  /// error feedback, the residual of earlier encodings is added, unless the gradient is not fit: a
  /// residual that is not sent must not count as sent. Blocks until the bytes are on the host.
  [[nodiscard]] virtual OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                                     const Accepts& accepts) = 0;
  /// For an outer gradient that was encoded but not counted, and whose work local values no longer
  /// hold: adds it to the residual again, as if it had not been sent. Without error feedback its
  /// work is lost. THROWS: RunError when a resumed round's bytes do not decode.
  virtual void take_back(const Codec& codec, const Encoded& sent) = 0;
  /// For an outer gradient whose work stays in the local values while it is in flight.
  /// keep_residual saves the residual before the encoding. When the round's end is known,
  /// forget_kept_residual drops the saved residual, or recall_residual restores it: the next outer
  /// gradient then holds the same work again, and the residual of its first encoding would count it
  /// twice. No effect without error feedback.
  virtual void keep_residual() = 0;
  virtual void forget_kept_residual() = 0;
  /// RETURNS: true if a residual had been saved.
  virtual bool recall_residual() = 0;
  /// local := anchor, and the residual := 0.
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
  /// anchor := OuterOpt(anchor, mean) and local := local + (anchor_new - anchor_old): local -
  /// anchor does not change.
  virtual void step_and_rebase(std::span<const float> mean) = 0;

  /// Anchor, momentum and residual, under the fragment's number, in one form for all places.
  virtual void save(StateWriter& writer) const = 0;
  virtual void load(StateReader& reader) = 0;

  /// The interface for overlap; null if this fragment's work always blocks.
  [[nodiscard]] virtual AsyncFragment* beside() { return nullptr; }

  [[nodiscard]] virtual const Fragment& fragment() const = 0;
  /// The anchor on the host, valid until the next call that changes it or drop_anchor_copy. Blocks
  /// while it is fetched.
  [[nodiscard]] virtual std::span<const float> anchor() const = 0;
  /// Allows the host copy of anchor() to be freed. The default does nothing: the anchor is kept on
  /// the host.
  virtual void drop_anchor_copy() {}
};

/// Canonical elements of a fragment, adjacent ranges merged.
[[nodiscard]] std::vector<CanonicalRange> elements_of(const Fragment& fragment,
                                                      std::span<const Parameter> parameters);

/// Makes the fragments of one worker, called in their order; the maker decides where they are kept.
using FragmentMaker = std::function<std::unique_ptr<OuterFragment>(const Fragment& fragment)>;

}  // namespace isthmus::outer
