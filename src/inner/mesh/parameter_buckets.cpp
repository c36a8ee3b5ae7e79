// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/parameter_buckets.h"

#include <algorithm>

#include "core/base/check.h"
#include "inner/model/local_values.h"

namespace isthmus {

ParameterBuckets::ParameterBuckets(const ModelLayout& layout) : elements_(layout.elements()) {
  const std::int64_t layers = layout.shape().layers;
  const std::int64_t in_layer = layout.layer_elements(0).size();
  const std::int64_t before = layout.layer_elements(0).begin;
  const std::int64_t after = elements_ - layout.layer_elements(layers - 1).end;
  const std::int64_t outside = std::min<std::int64_t>(layers, 2) * in_layer;
  ISTHMUS_CHECK(layers >= 1, layers);
  const bool apart = layout.shape().tied;  // the table is in use until the end
  memory_values_ = outside + (apart ? before + after : std::max(before, after));

  if (before > 0) buckets_.push_back({{0, before}, 0, 2, outside});
  first_layer_ = buckets_.size();
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    buckets_.push_back({layout.layer_elements(layer), layout.first_tensor(layer),
                        static_cast<std::size_t>(layer % 2), layer % 2 * in_layer});
  }
  if (after > 0) {
    buckets_.push_back({{elements_ - after, elements_},
                        layout.final_norm_weight(),
                        apart ? std::size_t{3} : std::size_t{2},
                        apart ? outside + before : outside});
  }
  std::size_t bucket = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    while (tensor.elements.begin >= buckets_[bucket].elements.end) ++bucket;
    of_tensor_.push_back(bucket);
    begins_.push_back(tensor.elements.begin);
  }
}

std::size_t ParameterBuckets::of_layer(std::int64_t layer) const {
  return first_layer_ + static_cast<std::size_t>(layer);
}

std::optional<std::size_t> ParameterBuckets::following(std::size_t bucket, int step) const {
  if (step > 0) return bucket + 1 < size() ? std::optional(bucket + 1) : std::nullopt;
  return bucket > first_layer_ ? std::optional(bucket - 1) : std::nullopt;
}

std::vector<std::int64_t> ParameterBuckets::counts(CanonicalRange range, int ranks) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(common(slice_of(elements_, ranks, rank), range).size());
  }
  return counts;
}

}  // namespace isthmus
