// SPDX-License-Identifier: Apache-2.0
// The inner optimizer on a CUDA device: AdamW and SGD with the arithmetic of inner/optimizer.h,
// element by element, and its checkpoints. Owns moments and counter; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "inner/model_layout.h"
#include "isthmus/config.h"
#include "isthmus/state.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus {

class CudaOptimizer {
 public:
  /// THROWS: ConfigError naming an optimizer that is unknown or not on the device,
  /// OutOfDeviceMemory.
  CudaOptimizer(const InnerConfig& config, const ModelLayout& layout, cuda::Stream& stream);

  /// Puts the next update's numbers on the device. REQUIRES: the update before has been done.
  void prepare(cuda::Stream& stream, double lr);
  /// Queues one update: gradients are clipped by their norm, whose square is *squares; what is not
  /// finite changes nothing. Reads what `prepare` has put down, so it may be recorded as a graph.
  void queue(cuda::Stream& stream, float* values, const float* gradients, kernels::Bf16* working,
             const double* squares) const;
  /// The update that was queued has been done and changed something.
  void count() { ++updates_; }

  /// Forgets moments and the number of updates.
  void reset(cuda::Stream& stream);
  /// As InnerOptimizer's, by way of host memory. Block.
  void save(cuda::Stream& stream, StateWriter& writer) const;
  void load(cuda::Stream& stream, StateReader& reader);
  /// Takes over the state of another one with the same options, on another device maybe. Blocks.
  void take(cuda::Stream& stream, const CudaOptimizer& other);

  /// (elements,) float32 on the device: first (0) or second (1) moments; null where there are none.
  [[nodiscard]] float* moment(int index) const;

  /// Of moments, and of what else there is. They need no device.
  [[nodiscard]] static std::int64_t moment_bytes(const InnerConfig& config,
                                                 const ModelLayout& layout);
  [[nodiscard]] static std::int64_t other_bytes(const InnerConfig& config,
                                                const ModelLayout& layout);

 private:
  [[nodiscard]] bool has(int index) const;

  InnerConfig config_;
  std::int64_t elements_;
  std::int64_t updates_ = 0;
  cuda::DeviceArray<cuda::ParameterRun> parts_;
  cuda::DeviceArray<float> moments_;  // first, then second, as far as there are any
  cuda::DeviceArray<cuda::StepNumbers> numbers_;
  cuda::PinnedArray<cuda::StepNumbers> host_numbers_;
};

}  // namespace isthmus
