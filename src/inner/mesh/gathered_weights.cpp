// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/gathered_weights.h"

#include <utility>
#include <vector>

#include "core/state/state_memory.h"

namespace isthmus {

GatheredWeights::GatheredWeights(const ParameterBuckets& buckets, Communicator& data,
                                 LocalValues slice)
    : buckets_(buckets),
      data_(data),
      slice_(slice),
      memory_(static_cast<std::size_t>(buckets.memory_values()) * sizeof(float)) {}

void GatheredWeights::forget() {
  for (Buffer& buffer : buffers_) {
    if (buffer.gathering) std::exchange(buffer.gathering, nullptr)->wait();
    buffer.bucket.reset();
  }
}

void GatheredWeights::start(std::size_t bucket) {
  const ParameterBucket& wanted = buckets_[bucket];
  Buffer& buffer = buffers_[wanted.buffer];
  if (buffer.bucket == bucket) return;
  if (buffer.gathering) std::exchange(buffer.gathering, nullptr)->wait();
  buffer.bucket = bucket;
  const CanonicalRange own = common(slice_.range, wanted.elements);
  const ConstValues input{own.size() == 0 ? nullptr : slice_.at(own.begin), own.size(),
                          Dtype::kF32};
  const Values output{static_cast<float*>(memory_.data()) + wanted.place, wanted.elements.size(),
                      Dtype::kF32};
  buffer.gathering = data_.start(
      [input, output, counts = buckets_.counts(buckets_[bucket].elements, data_.size())](
          Communicator& ranks) { ranks.all_gather(input, counts, output); });
}

const float* GatheredWeights::get(std::size_t bucket) {
  start(bucket);
  const ParameterBucket& wanted = buckets_[bucket];
  Buffer& buffer = buffers_[wanted.buffer];
  if (buffer.gathering) {
    std::exchange(buffer.gathering, nullptr)->wait();
    const CanonicalRange own = common(slice_.range, wanted.elements);
    if (own.size() > 0) {
      state_done({slice_.at(own.begin), static_cast<std::size_t>(own.size())}, StateUse::kRead);
    }
  }
  return static_cast<const float*>(memory_.data()) + wanted.place;
}

const float* GatheredWeights::tensor(std::size_t index) {
  const std::size_t bucket = buckets_.of_tensor(index);
  const float* const values = get(bucket);
  // A tied table is asked for again by the head, where no layer comes next.
  if (before_layers_) start(buckets_.of_layer(0));
  return values + (buckets_.tensor_begin(index) - buckets_[bucket].elements.begin);
}

// The next bucket's buffer holds a layer from two layers back, which the pass no longer needs.
const float* GatheredWeights::layer(std::int64_t layer) {
  before_layers_ = false;
  const std::size_t bucket = buckets_.of_layer(layer);
  const float* const values = get(bucket);
  if (const auto next = buckets_.following(bucket, step_)) start(*next);
  return values;
}

void GatheredWeights::walk() {
  forward();
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    (void)get(bucket);
    if (bucket + 1 < buckets_.size()) start(bucket + 1);
  }
}

}  // namespace isthmus
