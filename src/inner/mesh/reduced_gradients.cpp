// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/reduced_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/state/state_memory.h"
#include "inner/mesh/tensor_sums.h"

namespace isthmus {

ReducedGradients::ReducedGradients(const RankLayout& layout, const ParameterBuckets& buckets,
                                   const MeshGroups& groups, LocalValues slice)
    : layout_(layout),
      buckets_(buckets),
      groups_(groups),
      slice_(slice),
      memory_(static_cast<std::size_t>(buckets.memory_values()) * sizeof(float)) {}

void ReducedGradients::begin(bool first_of_step) { first_of_step_ = first_of_step; }

float* ReducedGradients::memory(const ParameterBucket& bucket) const {
  return static_cast<float*>(memory_.data()) + bucket.place;
}

CanonicalRange ReducedGradients::summed(const ParameterBucket& bucket) const {
  return common(bucket.elements, {layout_.tied_embedding().end, layout_.local().elements()});
}

float* ReducedGradients::get(std::size_t bucket) {
  const ParameterBucket& wanted = buckets_[bucket];
  Buffer& buffer = buffers_[wanted.buffer];
  if (buffer.bucket != bucket) {
    settle(buffer);
    buffer.bucket = bucket;
    const CanonicalRange all = summed(wanted);
    std::fill_n(memory(wanted) + (all.begin - wanted.elements.begin), all.size(), 0.0f);
  }
  return memory(wanted);
}

float* ReducedGradients::tensor(std::size_t index) {
  const std::size_t bucket = buckets_.of_tensor(index);
  const CanonicalRange elements = layout_.local().tensors()[index].elements;
  return get(bucket) + (elements.begin - buckets_[bucket].elements.begin);
}

float* ReducedGradients::layer(std::int64_t layer) { return get(buckets_.of_layer(layer)); }

void ReducedGradients::ready(std::size_t tensor) {
  const std::size_t index = buckets_.of_tensor(tensor);
  const ParameterBucket& bucket = buckets_[index];
  if (tensor != bucket.first_tensor) return;
  Buffer& buffer = buffers_[bucket.buffer];
  ISTHMUS_CHECK(buffer.bucket == index, tensor);
  const CanonicalRange all = summed(bucket);
  if (all.size() == 0) {
    buffer.bucket.reset();
    return;
  }
  const auto at = [&](std::int64_t place) {
    return memory(bucket) + (place - bucket.elements.begin);
  };
  sum_over_tensor_ranks(layout_, groups_, all, at(all.begin));
  const CanonicalRange own = common(slice_.range, all);
  const ConstValues input{at(all.begin), all.size(), Dtype::kF32};
  const Values output{own.size() == 0 ? nullptr : at(own.begin), own.size(), Dtype::kF32};
  buffer.reducing = groups_.data->start(
      [input, output, counts = buckets_.counts(all, groups_.data->size())](Communicator& ranks) {
        ranks.reduce_scatter(input, counts, output, Reduce::kSum);
      });
}

void ReducedGradients::settle(Buffer& buffer) {
  if (!buffer.bucket) return;
  ISTHMUS_CHECK(buffer.reducing != nullptr, *buffer.bucket);
  std::exchange(buffer.reducing, nullptr)->wait();
  const ParameterBucket& bucket = buckets_[*buffer.bucket];
  buffer.bucket.reset();
  const CanonicalRange own = common(slice_.range, summed(bucket));
  if (own.size() == 0) return;
  const float* const sums = memory(bucket) + (own.begin - bucket.elements.begin);
  float* const to = slice_.at(own.begin);
  for (std::int64_t i = 0; i < own.size(); ++i) to[i] = first_of_step_ ? sums[i] : to[i] + sums[i];
  state_done({to, static_cast<std::size_t>(own.size())}, StateUse::kWrite);
}

void ReducedGradients::finish() {
  for (Buffer& buffer : buffers_) settle(buffer);
}

}  // namespace isthmus
