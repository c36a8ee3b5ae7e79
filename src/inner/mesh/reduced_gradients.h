// SPDX-License-Identifier: Apache-2.0
// ZeRO 2 and 3: a pass adds a layer's gradients in a buffer. Once they are final they are
// reduce-scattered over the data-parallel ranks: each rank keeps the sums of its slice, while the
// pass continues with the next layer in another buffer.
//
// DETERMINISM: a micro-batch's sums are in rank order; slices add micro-batches in order. With one
// micro-batch the bits are those of gradients summed whole. With several micro-batches the order of
// summation differs (whole gradients add a rank's micro-batches first), so results differ by
// rounding. One thread, that of the rank.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/parameter_buckets.h"
#include "inner/mesh/rank_layout.h"
#include "inner/model/local_values.h"
#include "inner/model/model_gradients.h"
#include "kernels/aligned_buffer.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class ReducedGradients final : public Gradients<float> {
 public:
  /// Borrows all arguments. `slice`, this rank's slice in groups.data, receives the sums.
  ReducedGradients(const RankLayout& layout, const ParameterBuckets& buckets,
                   const MeshGroups& groups, LocalValues slice);

  /// Begins the layers' backward pass of a micro-batch, after its head's gradients and before the
  /// next head's; in a step's first micro-batch the slice is overwritten.
  void begin(bool first_of_step);
  [[nodiscard]] float* tensor(std::size_t index) override;
  [[nodiscard]] float* layer(std::int64_t layer) override;
  /// Declares this micro-batch's gradient of a tensor final. Collective if it completes a bucket.
  void ready(std::size_t tensor);
  /// Waits until the micro-batch's sums are in the slice.
  void finish();

  [[nodiscard]] std::size_t held_bytes() const {
    return static_cast<std::size_t>(buckets_.memory_values()) * sizeof(float);
  }

 private:
  struct Buffer {
    std::optional<std::size_t> bucket;
    std::unique_ptr<Work> reducing;
  };
  [[nodiscard]] float* memory(const ParameterBucket& bucket) const;
  /// The bucket's values without a tied_embedding(), whose gradient another stage has.
  [[nodiscard]] CanonicalRange summed(const ParameterBucket& bucket) const;
  /// Destination of a bucket's gradients; filled with zeros at the first request.
  [[nodiscard]] float* get(std::size_t bucket);
  /// Adds the sums in `buffer` to the slice.
  void settle(Buffer& buffer);

  const RankLayout& layout_;
  const ParameterBuckets& buckets_;
  const MeshGroups& groups_;
  LocalValues slice_;
  bool first_of_step_ = true;
  kernels::AlignedBuffer memory_;
  std::array<Buffer, ParameterBuckets::kBuffers> buffers_;
};

}  // namespace isthmus
