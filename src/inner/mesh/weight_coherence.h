// SPDX-License-Identifier: Apache-2.0
// Coherence of the canonical weights of a mesh whose ranks update separate weights: tracks the
// newer copy, and makes the copies that readers and writers of the canonical weights need
// (InnerLoop::read_values, wrote_values). The mesh copies the values. One thread.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "inner/model/weight_copies.h"

namespace isthmus {

class WeightCoherence {
 public:
  /// Copies tensors between the canonical weights and the ranks'.
  using Move = std::function<void(TensorRange tensors)>;
  /// canonical (elements,): borrowed. collect: copies from the ranks; hand_out: to them. At first
  /// the ranks have no weights.
  WeightCoherence(const ModelLayout& layout, float* canonical, Move collect, Move hand_out)
      : copies_(layout),
        elements_(layout.elements()),
        canonical_(canonical),
        collect_(std::move(collect)),
        hand_out_(std::move(hand_out)) {}

  [[nodiscard]] float* canonical() const { return canonical_; }
  [[nodiscard]] CanonicalRange all() const { return {0, elements_}; }
  [[nodiscard]] TensorRange all_tensors() const { return copies_.all(); }

  /// Makes the canonical values of these elements valid.
  void read(CanonicalRange elements);
  /// Called after other code has written these canonical elements; the rest of a partly written
  /// tensor is collected if the ranks have the newer copy.
  void wrote(CanonicalRange elements);
  /// Makes the ranks' weights equal to the canonical ones. RETURNS: true if a copy was needed.
  bool give();
  /// The ranks have updated all weights.
  void ranks_updated() { copies_.ranks_updated(); }
  /// The ranks have lost their weights.
  void ranks_lost() { copies_.canonical_is_newer(copies_.all()); }
  [[nodiscard]] bool ranks_have_newer() const {
    return !copies_.newer_at_ranks(copies_.all()).empty();
  }

 private:
  [[nodiscard]] std::span<float> values_of(TensorRange tensors) const;
  void keep_written(std::size_t tensor, CanonicalRange elements);

  WeightCopies copies_;
  std::int64_t elements_;
  float* canonical_;
  Move collect_, hand_out_;
};

}  // namespace isthmus
