// SPDX-License-Identifier: Apache-2.0
// The buckets in which a rank's values travel between data-parallel ranks under ZeRO 2 and 3: what
// comes before the layers, each layer, what comes after; and the memory that they share, each in a
// buffer of it. Layers take turns in two buffers, so that one can travel while the other is used;
// what lies before and after the layers shares a third one, or has two where a tied table is used
// at both ends. A pipeline stage has layers, and at most one of the others unless it is the whole
// model or has a tied table as its head, which lies before them. Immutable; safe to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inner/model/model_layout.h"

namespace isthmus {

struct ParameterBucket {
  CanonicalRange elements;
  std::size_t first_tensor = 0;  // whose gradient is final last
  std::size_t buffer = 0;
  std::int64_t place = 0;  // of its first element in the memory of all buffers
};

class ParameterBuckets {
 public:
  static constexpr std::size_t kBuffers = 4;

  /// REQUIRES: at least one layer.
  explicit ParameterBuckets(const ModelLayout& layout);

  [[nodiscard]] const ParameterBucket& operator[](std::size_t i) const { return buckets_[i]; }
  [[nodiscard]] std::size_t size() const { return buckets_.size(); }
  [[nodiscard]] std::size_t of_layer(std::int64_t layer) const;
  [[nodiscard]] std::size_t of_tensor(std::size_t tensor) const { return of_tensor_[tensor]; }
  /// The bucket that the one of a layer is followed by, in a pass that goes on to the next layer
  /// (`step` 1, or what comes after the layers) or to the one before (-1). None: the pass ends.
  [[nodiscard]] std::optional<std::size_t> following(std::size_t bucket, int step) const;
  [[nodiscard]] std::int64_t tensor_begin(std::size_t tensor) const { return begins_[tensor]; }
  /// Values that the buffers hold together.
  [[nodiscard]] std::int64_t memory_values() const { return memory_values_; }

  /// (ranks,): how many values of `range` are in each rank's slice of all.
  [[nodiscard]] std::vector<std::int64_t> counts(CanonicalRange range, int ranks) const;

 private:
  std::int64_t elements_;
  std::size_t first_layer_ = 0;  // its bucket
  std::vector<ParameterBucket> buckets_;
  std::vector<std::size_t> of_tensor_;
  std::vector<std::int64_t> begins_;  // of tensors
  std::int64_t memory_values_ = 0;
};

}  // namespace isthmus
