// SPDX-License-Identifier: Apache-2.0
// Training batches on their way to a CUDA device: while one step is computed, the next step's batch
// is read on the host and copied to the device by a stream of its own. A step's batch then lies
// at the same addresses as the last one's, so that the step can be a graph.
//
// Memory: one batch in pinned host memory and two on the device. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "inner/cuda/cuda_model.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/device.h"

namespace isthmus {

class CudaBatches {
 public:
  struct Shape {
    std::int64_t sequences = 1;      // of a step's batch
    std::int64_t micro_batches = 1;  // divides sequences
    std::int64_t context = 1;        // most tokens of a sequence
    std::int64_t vocab = 0;
    std::int64_t last_step = 0;  // nothing is read ahead beyond it
  };
  /// batches: a pure function of the step. THROWS: OutOfDeviceMemory.
  CudaBatches(const Shape& shape, std::function<TokenBatch(StepIndex)> batches);
  [[nodiscard]] static std::int64_t device_bytes(const Shape& shape);

  /// What is known of a step's batch on the host.
  struct Step {
    std::int64_t length = 0;   // tokens of a sequence
    std::int64_t targets = 0;  // those that count
  };
  /// Queues on `compute` what brings step t's batch to its place, read ahead or read now.
  /// THROWS: what `batches` throws.
  [[nodiscard]] Step take(cuda::Stream& compute, StepIndex t);
  /// Reads step t + 1 ahead. An error waits until the step is taken. REQUIRES: the batch before
  /// was taken.
  void read_ahead(StepIndex t);

  /// Micro-batch `part` of the batch that was taken.
  [[nodiscard]] CudaTokens part(const Step& step, std::int64_t part) const;
  /// Any other samples in the place of the batch, which is lost; without their order.
  /// REQUIRES: at most `rows_of_part` tokens, ids and targets below vocab. Blocks.
  [[nodiscard]] CudaTokens put(cuda::Stream& compute, const TokenBatch& samples);
  [[nodiscard]] std::int64_t rows_of_part() const {
    return shape_.sequences / shape_.micro_batches * shape_.context;
  }

 private:
  /// On the host: ids, targets, order of a step, each (rows,).
  void read(StepIndex t);
  void check_ids(const TokenBatch& batch) const;
  [[nodiscard]] std::int64_t rows() const { return shape_.sequences * shape_.context; }

  Shape shape_;
  std::function<TokenBatch(StepIndex)> batches_;
  cuda::PinnedArray<std::int32_t> pinned_;
  cuda::DeviceArray<std::int32_t> ahead_, place_;
  cuda::Event copied_;                     // pinned_ to ahead_
  cuda::Event taken_;                      // ahead_ to place_
  std::optional<std::int64_t> read_step_;  // what pinned_ and ahead_ hold
  Step step_;                              //
  cuda::Stream copies_;                    // ends before what it reads and writes
};

}  // namespace isthmus
