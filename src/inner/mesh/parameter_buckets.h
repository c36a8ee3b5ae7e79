// SPDX-License-Identifier: Apache-2.0
// The buckets in which a rank's values are exchanged between data-parallel ranks with ZeRO 2 and 3:
// the values before the layers, each layer, the values after. The buckets share memory, each in one
// of its buffers. Layers alternate between two buffers, so that one is in flight while the other is
// used. The buckets before and after the layers share a third buffer, or have one each if a tied
// table is used at both ends. A pipeline stage has layers, and at most one of the other two unless
// it is the whole model or uses a tied table as its head, which is before the layers. Immutable;
// safe to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inner/model/model_layout.h"

namespace isthmus {

struct ParameterBucket {
  CanonicalRange elements;
  std::size_t first_tensor = 0;  // the tensor whose gradient is final last
  std::size_t buffer = 0;
  std::int64_t place = 0;  // index of its first element in the memory of all buffers
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
  /// The bucket used after this layer's: `step` 1: the next layer's, or that after the layers; -1:
  /// the previous one. Absent: the pass ends.
  [[nodiscard]] std::optional<std::size_t> following(std::size_t bucket, int step) const;
  [[nodiscard]] std::int64_t tensor_begin(std::size_t tensor) const { return begins_[tensor]; }
  /// Values in all buffers together.
  [[nodiscard]] std::int64_t memory_values() const { return memory_values_; }

  /// (ranks,): number of values of `range` in each rank's slice of all values.
  [[nodiscard]] std::vector<std::int64_t> counts(CanonicalRange range, int ranks) const;

 private:
  std::int64_t elements_;
  std::size_t first_layer_ = 0;  // bucket of the first layer
  std::vector<ParameterBucket> buckets_;
  std::vector<std::size_t> of_tensor_;
  std::vector<std::int64_t> begins_;  // of tensors
  std::int64_t memory_values_ = 0;
};

}  // namespace isthmus
