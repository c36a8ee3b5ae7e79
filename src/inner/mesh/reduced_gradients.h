// SPDX-License-Identifier: Apache-2.0
// ZeRO 2 and 3: a pass adds a layer's gradients in a buffer; once they are final they are summed
// over the data-parallel ranks, each of which is left with what lies in its slice, while the pass
// goes on with the next layer in another buffer.
//
// DETERMINISM: a micro-batch's sums are in rank order; slices add micro-batches in order. So with
// one micro-batch the bits are those of gradients summed whole; with several these add up the other
// way round (all micro-batches of a rank first), a rounding apart.
// One thread, that of the rank.
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
  /// All are borrowed; `slice`, this rank's of groups.data, gets the sums.
  ReducedGradients(const RankLayout& layout, const ParameterBuckets& buckets,
                   const MeshGroups& groups, LocalValues slice);

  /// The layers' backward pass of a micro-batch begins, after its head's gradients and before those
  /// of the next one's; with the first one of a step the slice starts anew.
  void begin(bool first_of_step);
  [[nodiscard]] float* tensor(std::size_t index) override;
  [[nodiscard]] float* layer(std::int64_t layer) override;
  /// This micro-batch's gradient of a tensor is final. Collective when it is a bucket's last one.
  void ready(std::size_t tensor);
  /// The micro-batch's sums are in the slice.
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
  /// The bucket's values but for a tied_embedding(), whose gradient another stage has.
  [[nodiscard]] CanonicalRange summed(const ParameterBucket& bucket) const;
  /// Where a bucket's gradients are added: zeros when it is asked for the first time.
  [[nodiscard]] float* get(std::size_t bucket);
  /// Adds what has been summed in `buffer` to the slice.
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
