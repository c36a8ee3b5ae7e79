// SPDX-License-Identifier: Apache-2.0
// The inner optimizer on a CUDA device: the rules of inner/model/optimizer.h, and its checkpoints.
// AdamW and SGD have its arithmetic element by element; Muon's matrices, that of
// kernels/cuda/muon.h, one after another in the same scratch. Owns moments and counter; one thread.
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
  /// Of all tensors of `layout`. THROWS: ConfigError naming an unknown optimizer or adjust_lr,
  /// OutOfDeviceMemory.
  CudaOptimizer(const InnerConfig& config, const ModelLayout& layout, cuda::Stream& stream);

  /// Puts the next update's numbers on the device. factor: of the gradients, in the place of what
  /// their norm would clip them by. REQUIRES: the update before has been done.
  void prepare(cuda::Stream& stream, double lr, std::optional<double> factor = {});
  /// Queues one update: gradients are clipped by their norm, whose square is *squares; what is not
  /// finite changes nothing. Reads what `prepare` has put down, so it may be recorded as a graph,
  /// the second time at the earliest (cuda::Blas).
  void queue(cuda::Stream& stream, cuda::Blas& blas, float* values, const float* gradients,
             kernels::Bf16* working, const double* squares) const;
  /// The update that was queued has been done and changed something.
  void count() { ++updates_; }

  /// Forgets moments; the number of updates becomes `updates`.
  void reset(cuda::Stream& stream, std::int64_t updates = 0);
  /// As InnerOptimizer's, by way of host memory. Block.
  void save(cuda::Stream& stream, StateWriter& writer) const;
  void load(cuda::Stream& stream, StateReader& reader);
  /// Takes over the state of another one with the same options, on another device maybe. Blocks.
  void take(cuda::Stream& stream, const CudaOptimizer& other);

  /// First or second moments, float32 on the device; the second ones lack those of Muon's matrices.
  /// Null where the optimizer has none such.
  [[nodiscard]] float* moment(int index) const;

  /// Of moments, and of what else there is, Muon's scratch for the largest matrix among it; not the
  /// workspace of its products. They need no device.
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
  cuda::DeviceArray<float> moments_;  // first, then second, as far as there are any
  std::vector<cuda::MuonMatrix> matrices_;
  cuda::DeviceArray<std::byte> scratch_;
  cuda::DeviceArray<cuda::StepNumbers> numbers_;
  cuda::PinnedArray<cuda::StepNumbers> host_numbers_;
};

}  // namespace isthmus
