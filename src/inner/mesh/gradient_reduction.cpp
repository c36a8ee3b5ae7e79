// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/gradient_reduction.h"

#include <utility>

#include "core/base/check.h"
#include "inner/mesh/tensor_sums.h"

namespace isthmus {

GradientReduction::GradientReduction(const RankLayout& layout, const GradientBucketOptions& options,
                                     const MeshGroups& groups, float* gradients)
    : layout_(layout),
      buckets_(gradient_buckets(layout, options)),
      groups_(groups),
      gradients_(gradients),
      rank_(groups.data->rank()),
      ready_(layout.local().tensors().size()),
      final_from_(ready_.size()),
      settled_from_(layout.local().elements()) {
  ISTHMUS_CHECK(options.ranks == groups.data->size(), options.ranks, groups.data->size());
}

void GradientReduction::begin() {
  reducing_.clear();
  ready_.assign(ready_.size(), false);
  final_from_ = ready_.size();
  settled_from_ = layout_.local().elements();
}

/// The first tensor of half a layer, or of those before or after the layers.
bool GradientReduction::opens_a_part(std::size_t tensor) const {
  const std::vector<TensorInfo>& tensors = layout_.local().tensors();
  return tensor == 0 || tensors[tensor].layer != tensors[tensor - 1].layer ||
         opens_upper_half(layout_.local().shape(), tensors[tensor].name);
}

void GradientReduction::ready(std::size_t tensor) {
  ISTHMUS_CHECK(!ready_[tensor], tensor);
  ready_[tensor] = true;
  // With a split backward pass the embedding is ready before the layers' products are.
  while (final_from_ > 0 && ready_[final_from_ - 1]) {
    --final_from_;
    if (opens_a_part(final_from_)) {
      settle(layout_.local().tensors()[final_from_].elements.begin);
    }
  }
}

void GradientReduction::settle(std::int64_t begin) {
  sum_over_tensor_ranks(layout_, groups_, {begin, settled_from_}, gradients_ + begin);
  settled_from_ = begin;
  while (reducing_.size() < buckets_.size() && buckets_[reducing_.size()].begin >= begin) {
    start(reducing_.size());
  }
}

void GradientReduction::start(std::size_t bucket) {
  const CanonicalRange all = buckets_[bucket];
  const CanonicalRange own = buckets_.share(bucket, rank_);
  const ConstValues input{gradients_ + all.begin, all.size(), Dtype::kF32};
  const Values output{own.size() == 0 ? nullptr : gradients_ + own.begin, own.size(), Dtype::kF32};
  reducing_.push_back(
      groups_.data->start([input, output, counts = buckets_.counts(bucket)](Communicator& ranks) {
        ranks.reduce_scatter(input, counts, output, Reduce::kSum);
      }));
}

void GradientReduction::finish() {
  ISTHMUS_CHECK(reducing_.size() == buckets_.size(), reducing_.size(), buckets_.size());
  for (const std::unique_ptr<Work>& work : std::exchange(reducing_, {})) work->wait();
}

}  // namespace isthmus
