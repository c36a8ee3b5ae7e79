// SPDX-License-Identifier: Apache-2.0
// The inner optimizer on a CUDA device, with the rules and checkpoints of inner/model/optimizer.h.
// AdamW and SGD have the same arithmetic element by element; Muon's matrices are updated one after
// another by kernels/cuda/muon.h in shared scratch. Owns moments and counter; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "isthmus/state.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus {

class CudaOptimizer {
 public:
  /// For all tensors of `layout`. THROWS: ConfigError naming an unknown optimizer or adjust_lr,
  /// OutOfDeviceMemory.
  CudaOptimizer(const InnerConfig& config, const ModelLayout& layout, cuda::Stream& stream);

  /// Copies the next update's numbers to the device. factor: multiplies the gradients in place of
  /// clipping by norm. REQUIRES: the previous update has completed.
  void prepare(cuda::Stream& stream, double lr, std::optional<double> factor = {});
  /// Queues one update: gradients are clipped by their norm, whose square is *squares; a norm that
  /// is not finite changes nothing. Reads what `prepare` has copied, so it may be captured in a
  /// CUDA graph, from the second run on (cuda::Blas).
  void queue(cuda::Stream& stream, cuda::Blas& blas, float* values, const float* gradients,
             kernels::Bf16* working, const double* squares) const;
  /// Counts a queued update that has completed and was not skipped.
  void count() { ++updates_; }

  /// Resets the moments; sets the number of updates to `updates`.
  void reset(cuda::Stream& stream, std::int64_t updates = 0);
  /// As InnerOptimizer's, through host memory. Block.
  void save(cuda::Stream& stream, StateWriter& writer) const;
  void load(cuda::Stream& stream, StateReader& reader);
  /// Copies the state of another optimizer with equal options, possibly on another device. Blocks.
  void take(cuda::Stream& stream, const CudaOptimizer& other);

  /// First or second moments, float32 on the device; second moments exclude Muon's matrices. Null
  /// if the optimizer has no such moment.
  [[nodiscard]] float* moment(int index) const;

  /// moment_bytes: bytes of moments. other_bytes: other device memory, including Muon's scratch for
  /// the largest matrix, without the workspace of matrix products. Need no device.
  [[nodiscard]] static std::int64_t moment_bytes(const InnerConfig& config,
                                                 const ModelLayout& layout);
  [[nodiscard]] static std::int64_t other_bytes(const InnerConfig& config,
                                                const ModelLayout& layout);

 private:
  [[nodiscard]] std::size_t size_of_moment(int index) const;

  InnerConfig config_;
  std::int64_t elements_;
  std::int64_t updates_ = 0;
  cuda::DeviceArray<cuda::ParameterRun> parts_;
  cuda::DeviceArray<float> moments_;  // first moments, then second, as far as the optimizer has
                                      // them
  std::vector<cuda::MuonMatrix> matrices_;
  cuda::DeviceArray<std::byte> scratch_;
  cuda::DeviceArray<cuda::StepNumbers> numbers_;
  cuda::PinnedArray<cuda::StepNumbers> host_numbers_;
};

}  // namespace isthmus
