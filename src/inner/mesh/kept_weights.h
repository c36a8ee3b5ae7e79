// SPDX-License-Identifier: Apache-2.0
// The canonical weights of a mesh whose ranks update their own: who has the newer ones, and the
// copies that readers and writers of the canonical ones need (InnerLoop::read_values,
// wrote_values). The mesh moves the values. One thread.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "inner/model/weight_copies.h"

namespace isthmus {

class KeptWeights {
 public:
  /// Moves tensors between the canonical weights and the ranks'.
  using Move = std::function<void(TensorRange tensors)>;
  /// canonical (elements,): borrowed. collect: from the ranks, hand_out: to them. The ranks have
  /// nothing yet.
  KeptWeights(const ModelLayout& layout, float* canonical, Move collect, Move hand_out)
      : copies_(layout),
        elements_(layout.elements()),
        canonical_(canonical),
        collect_(std::move(collect)),
        hand_out_(std::move(hand_out)) {}

  [[nodiscard]] float* canonical() const { return canonical_; }
  [[nodiscard]] CanonicalRange all() const { return {0, elements_}; }
  [[nodiscard]] TensorRange all_tensors() const { return copies_.all(); }

  /// Canonical values of these elements are right afterwards.
  void read(CanonicalRange elements);
  /// Others have written these canonical elements; the rest of a tensor that was written in part is
  /// collected where the ranks have it.
  void wrote(CanonicalRange elements);
  /// The ranks have the canonical weights afterwards. RETURNS: whether they lacked any.
  bool give();
  /// The ranks have updated all weights.
  void ranks_updated() { copies_.ranks_updated(); }
  /// The ranks have lost theirs.
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
