// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/tensor_sums.h"

#include <vector>

namespace isthmus {

void sum_over_tensor_ranks(const RankLayout& layout, const MeshGroups& groups, CanonicalRange range,
                           float* values) {
  // All at once, and as doubles: these few are summed as they are, whatever the codec of a layer's
  // sums.
  std::vector<double> summands;
  for (const CanonicalRange& partial : layout.partial()) {
    const CanonicalRange part = common(partial, range);
    if (part.size() == 0) continue;
    const float* const from = values + (part.begin - range.begin);
    summands.insert(summands.end(), from, from + part.size());
  }
  const auto count = static_cast<std::int64_t>(summands.size());
  if (count > 0) {
    groups.tensor->all_reduce({summands.data(), count, Dtype::kF64}, Reduce::kSum);
  }
  auto sum = summands.begin();
  for (const CanonicalRange& partial : layout.partial()) {
    const CanonicalRange part = common(partial, range);
    if (part.size() == 0) continue;
    float* const to = values + (part.begin - range.begin);
    for (std::int64_t i = 0; i < part.size(); ++i) to[i] = static_cast<float>(*sum++);
  }
  for (const CanonicalRange& copied : layout.copied()) {
    const CanonicalRange part = common(copied, range);
    if (part.size() == 0) continue;
    groups.copies->all_reduce({values + (part.begin - range.begin), part.size(), Dtype::kF32},
                              Reduce::kSum);
  }
}

}  // namespace isthmus
