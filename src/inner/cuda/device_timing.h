// SPDX-License-Identifier: Apache-2.0
// How fast a CUDA device trains: whole steps on random tokens, and the same device's speed at one
// large product measured in the same run. What `isthmus bench compute --device cuda` prints. The
// calling thread's device is the one; nothing else should use it.
#pragma once

#include <cstdint>
#include <string>

#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_timing.h"
#include "kernels/cuda/device.h"

namespace isthmus {

/// Milliseconds of whole steps, the loss read back in each.
struct DeviceTiming {
  std::string workload;
  cuda::DeviceInfo device;
  bool bf16 = false;
  bool cudnn_attention = false;  // computed it
  bool matmul_table = false;     // chose its products' algorithms
  Recompute recompute = Recompute::kNone;
  std::string optimizer;
  std::int64_t parameters = 0;
  std::int64_t sequences = 0, context = 0, micro_batches = 1;
  std::int64_t steps = 0;
  double best_ms = 0, median_ms = 0;
  double tokens_per_s = 0, median_tokens_per_s = 0;
  double gflops = 0, median_gflops = 0;  // of training_flops_per_token
  double product_gflops = 0;             // of a large product of the run's type: the bound
  double of_bound = 0;                   // gflops / product_gflops
  /// What the device's data sheet says of dense products of the type, and median_gflops by that;
  /// 0 for a device that is not known here.
  double peak_gflops = 0, mfu = 0;
  double device_mib = 0;  // memory that the loop took there
  double loss = 0;        // of the last step
};

/// The loop that is timed.
[[nodiscard]] LanguageModelOptions timed_loop_options(const Workload& workload,
                                                      const ModelTimingOptions& options);

/// Of the options it takes seconds, sequences, micro_batches, bf16, attention, recompute and
/// optimizer.
/// THROWS: ConfigError when the options do not fit the workload or a device, OutOfDeviceMemory.
[[nodiscard]] DeviceTiming time_model_on_device(const Workload& workload,
                                                const ModelTimingOptions& options,
                                                const cuda::DeviceInfo& device, const Clock& clock);

/// One JSON object without a line end, its fields those of ModelTiming where both have them.
[[nodiscard]] std::string to_json(const DeviceTiming& timing);

}  // namespace isthmus
