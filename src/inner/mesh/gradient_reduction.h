// SPDX-License-Identifier: Apache-2.0
// ZeRO 0 and 1: whole gradients summed over the data-parallel ranks, bucket by bucket, while the
// backward pass of a step's last micro-batch goes on. A bucket's sum is started when the last of
// its gradients is final and runs on a thread of the communicator.
//
// All ranks start the same buckets in the same order: in that of the values, whatever order tensors
// become final in. Summands of other tensor-parallel ranks are added first, layer by layer, since
// the buckets of ranks whose shares of the vocabulary differ are cut elsewhere.
// One thread, that of the rank.
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
  /// gradients (elements of the layout,); all are borrowed.
  GradientReduction(const RankLayout& layout, const GradientBucketOptions& options,
                    const MeshGroups& groups, float* gradients);

  /// A step begins. Waits for what a step that was broken off has left.
  void begin();
  /// The gradient of a tensor is this rank's whole sum of the step. Collective over the tensor-
  /// parallel ranks when it is the last one of half a layer.
  void ready(std::size_t tensor);
  /// Each rank's shares of the buckets are the sums. REQUIRES: all tensors were ready.
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
