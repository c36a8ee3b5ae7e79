// SPDX-License-Identifier: Apache-2.0
// ZeRO 0 and 1: reduce-scatters whole gradients over the data-parallel ranks, bucket by bucket,
// during the backward pass of a step's last micro-batch. A bucket's sum starts when its last
// gradient is final, and runs on a thread of the communicator.
//
// All ranks start the same buckets in the same order, that of the values, independent of the order
// in which tensors become final. Summands of other tensor-parallel ranks are added first, layer by
// layer, since ranks with different shares of the vocabulary have different bucket borders. One
// thread, that of the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/rank_layout.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class GradientReduction {
 public:
  /// Borrows all arguments. gradients (elements of the layout,).
  GradientReduction(const RankLayout& layout, const GradientBucketOptions& options,
                    const MeshGroups& groups, float* gradients);

  /// Begins a step. Waits for sums that an interrupted step has left running.
  void begin();
  /// Declares this rank's sum of a tensor's gradients over the step final. Collective over the
  /// tensor-parallel ranks if it is the last tensor of half a layer.
  void ready(std::size_t tensor);
  /// Waits until each rank has the sums of its shares. REQUIRES: all tensors were ready.
  void finish();

  [[nodiscard]] const GradientBuckets& buckets() const { return buckets_; }

 private:
  [[nodiscard]] bool opens_a_part(std::size_t tensor) const;
  void settle(std::int64_t begin);
  void start(std::size_t bucket);

  const RankLayout& layout_;
  GradientBuckets buckets_;
  const MeshGroups& groups_;
  float* gradients_;
  int rank_;                   // data-parallel
  std::vector<bool> ready_;    // by tensor
  std::size_t final_from_;     // tensors from this one on are ready
  std::int64_t settled_from_;  // values from this one on are summed over the tensor-parallel ranks
  std::vector<std::unique_ptr<Work>> reducing_;  // by bucket
};

}  // namespace isthmus
