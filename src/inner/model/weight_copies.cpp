// SPDX-License-Identifier: Apache-2.0
#include "inner/model/weight_copies.h"

#include <algorithm>

namespace isthmus {

WeightCopies::WeightCopies(const ModelLayout& layout)
    : newer_(layout.tensors().size(), Newer::kCanonical) {
  for (const TensorInfo& tensor : layout.tensors()) elements_.push_back(tensor.elements);
}

void WeightCopies::ranks_updated() { set(all(), Newer::kRanks); }

void WeightCopies::canonical_is_newer(TensorRange tensors) { set(tensors, Newer::kCanonical); }

void WeightCopies::are_alike(TensorRange tensors) { set(tensors, Newer::kNeither); }

void WeightCopies::set(TensorRange tensors, Newer newer) {
  for (std::size_t i = tensors.begin; i < tensors.end; ++i) newer_[i] = newer;
}

TensorRange WeightCopies::tensors_of(CanonicalRange elements) const {
  if (elements.size() <= 0) return {};
  const auto begin = std::ranges::partition_point(
      elements_, [&](const CanonicalRange& tensor) { return tensor.end <= elements.begin; });
  const auto end = std::partition_point(begin, elements_.end(), [&](const CanonicalRange& tensor) {
    return tensor.begin < elements.end;
  });
  return {static_cast<std::size_t>(begin - elements_.begin()),
          static_cast<std::size_t>(end - elements_.begin())};
}

std::vector<TensorRange> WeightCopies::runs(TensorRange among, Newer newer) const {
  std::vector<TensorRange> runs;
  for (std::size_t i = among.begin; i < among.end; ++i) {
    if (newer_[i] != newer) continue;
    if (!runs.empty() && runs.back().end == i) {
      ++runs.back().end;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

std::vector<TensorRange> WeightCopies::newer_at_ranks(TensorRange among) const {
  return runs(among, Newer::kRanks);
}

std::vector<TensorRange> WeightCopies::newer_in_canonical() const {
  return runs(all(), Newer::kCanonical);
}

}  // namespace isthmus
