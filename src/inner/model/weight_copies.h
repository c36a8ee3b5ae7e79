// SPDX-License-Identifier: Apache-2.0
// Tracks, tensor by tensor, if a mesh's newer weights are the canonical copy or those of the ranks
// that own them. Pure: the mesh copies the values. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inner/model/model_layout.h"

namespace isthmus {

/// Tensors [begin, end) of a canonical layout.
struct TensorRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const TensorRange&) const = default;
};

class WeightCopies {
 public:
  /// At first the ranks have no weights. The layout is read only in the constructor.
  explicit WeightCopies(const ModelLayout& layout);

  /// The ranks have updated all weights.
  void ranks_updated();
  /// The canonical values of these tensors were written, or the ranks have lost theirs.
  void canonical_is_newer(TensorRange tensors);
  /// Both copies are equal again.
  void are_alike(TensorRange tensors);

  /// Tensors with some of these elements.
  [[nodiscard]] TensorRange tensors_of(CanonicalRange elements) const;
  [[nodiscard]] CanonicalRange elements_of(std::size_t tensor) const { return elements_[tensor]; }
  [[nodiscard]] TensorRange all() const { return {0, elements_.size()}; }
  /// Tensors (of `among`) that are newer at the ranks, or in the canonical copy: adjacent ones
  /// merged, ascending.
  [[nodiscard]] std::vector<TensorRange> newer_at_ranks(TensorRange among) const;
  [[nodiscard]] std::vector<TensorRange> newer_in_canonical() const;

 private:
  enum class Newer : char { kNeither, kCanonical, kRanks };
  void set(TensorRange tensors, Newer newer);
  [[nodiscard]] std::vector<TensorRange> runs(TensorRange among, Newer newer) const;

  std::vector<CanonicalRange> elements_;
  std::vector<Newer> newer_;
};

}  // namespace isthmus
