// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/weight_coherence.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/state/state_memory.h"

namespace isthmus {

std::span<float> WeightCoherence::values_of(TensorRange tensors) const {
  const std::int64_t begin = copies_.elements_of(tensors.begin).begin;
  const std::int64_t end = copies_.elements_of(tensors.end - 1).end;
  return {canonical_ + begin, static_cast<std::size_t>(end - begin)};
}

void WeightCoherence::read(CanonicalRange elements) {
  for (const TensorRange& newer : copies_.newer_at_ranks(copies_.tensors_of(elements))) {
    collect_(newer);
    copies_.are_alike(newer);
    state_done(values_of(newer), StateUse::kWrite);
  }
}

void WeightCoherence::wrote(CanonicalRange elements) {
  const TensorRange tensors = copies_.tensors_of(elements);
  for (const TensorRange& newer : copies_.newer_at_ranks(tensors)) {
    for (const std::size_t edge : {newer.begin, newer.end - 1}) {
      keep_written(edge, elements);
    }
  }
  copies_.canonical_is_newer(tensors);
}

bool WeightCoherence::give() {
  const std::vector<TensorRange> newer = copies_.newer_in_canonical();
  for (const TensorRange& tensors : newer) {
    hand_out_(tensors);
    copies_.are_alike(tensors);
    state_done(values_of(tensors), StateUse::kRead);
  }
  return !newer.empty();
}

/// A tensor of which others have written `elements`, and the ranks the rest: it is whole here.
void WeightCoherence::keep_written(std::size_t tensor, CanonicalRange elements) {
  const CanonicalRange all = copies_.elements_of(tensor);
  const CanonicalRange part = common(all, elements);
  if (part == all || copies_.newer_at_ranks({tensor, tensor + 1}).empty()) return;
  const std::vector<float> written(canonical_ + part.begin, canonical_ + part.end);
  read(all);
  std::ranges::copy(written, canonical_ + part.begin);
  state_done(std::span<const float>(canonical_ + part.begin, written.size()), StateUse::kWrite);
}

}  // namespace isthmus
