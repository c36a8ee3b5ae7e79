// SPDX-License-Identifier: Apache-2.0
// ZeRO 3: a rank keeps its slice of the weights and all-gathers a bucket from the data-parallel
// ranks when a pass needs it; the next bucket is gathered while this one is used.
//
// Gathers are collective: data-parallel ranks run the same passes in the same order, and a rank
// without samples calls `walk` in place of a forward pass. One thread, that of the rank.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "inner/mesh/parameter_buckets.h"
#include "inner/model/local_values.h"
#include "inner/model/model_weights.h"
#include "kernels/aligned_buffer.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class GatheredWeights final : public Weights<float> {
 public:
  /// Borrows all arguments; `slice` is this rank's slice in `data`.
  GatheredWeights(const ParameterBuckets& buckets, Communicator& data, LocalValues slice);

  /// Sets the order in which the next pass requests layers. A bucket that is still in a buffer is
  /// not gathered again, even for another pass.
  void forward() {
    step_ = 1;
    before_layers_ = true;
    start(0);  // first of all everywhere, as in `walk`: a tied head's table too
  }
  void backward() { step_ = -1; }
  /// Declares the slices changed, and drops gathered copies.
  void forget();
  /// Makes the gathers of a forward pass without computing.
  void walk();

  /// Blocks until the bucket is gathered. Tensors before the layers may share a buffer with those
  /// behind them; final norm and head are in one bucket, so both are valid together.
  [[nodiscard]] const float* tensor(std::size_t index) override;
  /// Blocks as `tensor`, and begins to gather the bucket that the pass needs next.
  [[nodiscard]] const float* layer(std::int64_t layer) override;

  /// Bytes of the buffers.
  [[nodiscard]] std::size_t held_bytes() const {
    return static_cast<std::size_t>(buckets_.memory_values()) * sizeof(float);
  }

 private:
  struct Buffer {
    std::optional<std::size_t> bucket;
    std::unique_ptr<Work> gathering;
  };
  /// Gathers a bucket unless it is present or in flight.
  void start(std::size_t bucket);
  [[nodiscard]] const float* get(std::size_t bucket);

  const ParameterBuckets& buckets_;
  Communicator& data_;
  LocalValues slice_;
  int step_ = 1;
  bool before_layers_ = true;  // a forward pass has not requested a layer yet
  kernels::AlignedBuffer memory_;
  std::array<Buffer, ParameterBuckets::kBuffers> buffers_;
};

}  // namespace isthmus
