// SPDX-License-Identifier: Apache-2.0
// Copies training batches to a CUDA device: while one step is computed, the next step's batch is
// read on the host and copied to the device on a separate stream. Every step's batch ends at the
// same addresses, so that the step can be a CUDA graph.
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
    std::int64_t context = 1;        // longest sequence
    std::int64_t vocab = 0;
    std::int64_t last_step = 0;  // last step; later batches are not prefetched
  };
  /// batches: a pure function of the step. THROWS: OutOfDeviceMemory.
  CudaBatches(const Shape& shape, std::function<TokenBatch(StepIndex)> batches);
  [[nodiscard]] static std::int64_t device_bytes(const Shape& shape);

  /// Facts about a step's batch, on the host.
  struct Step {
    std::int64_t length = 0;   // tokens of a sequence
    std::int64_t targets = 0;  // number of targets that count
  };
  /// Queues on `compute` the copies of step t's batch to its final address; the batch was
  /// prefetched, or is read now. THROWS: exceptions of `batches`.
  [[nodiscard]] Step take(cuda::Stream& compute, StepIndex t);
  /// Prefetches step t + 1. An error is thrown when that step is taken. REQUIRES: the previous
  /// batch was taken.
  void read_ahead(StepIndex t);

  /// Micro-batch `part` of the last batch taken.
  [[nodiscard]] CudaTokens part(const Step& step, std::int64_t part) const;
  /// Overwrites the batch with other samples, without their embedding order. REQUIRES: at most
  /// `rows_of_part` tokens, ids and targets below vocab. Blocks.
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
  std::optional<std::int64_t> read_step_;  // step in pinned_ and ahead_
  Step step_;                              //
  cuda::Stream copies_;                    // destroyed before the memory it uses
};

}  // namespace isthmus
