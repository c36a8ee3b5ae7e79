// SPDX-License-Identifier: Apache-2.0
// Measures the training speed of a CUDA device: whole steps on random tokens, and the device's
// speed at one large matrix product in the same run. Used by `isthmus bench compute --device cuda`.
// Uses the calling thread's device, which must be otherwise idle.
#pragma once

#include <cstdint>
#include <string>

#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_timing.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// Milliseconds of whole steps; the loss is copied back in each.
struct DeviceTiming {
  std::string workload;
  cuda::DeviceInfo device;
  bool bf16 = false;
  bool cudnn_attention = false;  // cuDNN computed the attention
  bool matmul_table = false;     // a table chose the matrix products' algorithms
  Recompute recompute = Recompute::kNone;
  std::string optimizer;
  std::int64_t parameters = 0;
  std::int64_t sequences = 0, context = 0, micro_batches = 1;
  std::int64_t steps = 0;
  double best_ms = 0, median_ms = 0;
  double tokens_per_s = 0, median_tokens_per_s = 0;
  double gflops = 0, median_gflops = 0;  // by training_flops_per_token
  double product_gflops = 0;             // of a large matrix product of the run's type: the bound
  double of_bound = 0;                   // gflops / product_gflops
  /// Data sheet rate of dense matrix products of the type, and median_gflops relative to it; 0 for
  /// an unknown device.
  double peak_gflops = 0, mfu = 0;
  double device_mib = 0;  // device memory of the loop
  double loss = 0;        // of the last step
};

/// Options of the timed loop.
[[nodiscard]] LanguageModelOptions timed_loop_options(const Workload& workload,
                                                      const ModelTimingOptions& options);

/// Uses seconds, sequences, micro_batches, bf16, attention, recompute and optimizer of the options.
/// THROWS: ConfigError when the options do not fit the workload or a device, OutOfDeviceMemory.
[[nodiscard]] DeviceTiming time_model_on_device(const Workload& workload,
                                                const ModelTimingOptions& options,
                                                const cuda::DeviceInfo& device, const Clock& clock);

/// One JSON object without a line end; field names are those of ModelTiming if both have the field.
[[nodiscard]] std::string to_json(const DeviceTiming& timing);

}  // namespace isthmus
