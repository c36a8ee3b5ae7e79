// SPDX-License-Identifier: Apache-2.0
// What computes the inner loops of a process: the CPU, or CUDA devices that its workers share out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inner/loop/language_model_loop.h"
#include "isthmus/config.h"
#include "isthmus/types.h"
#include "kernels/cuda/device.h"

namespace isthmus::app {

struct TrainingPlan;

struct DeviceChoice {
  std::vector<cuda::DeviceInfo> devices;
  /// Without devices: why those that are there are left alone, or empty. With a mesh on devices:
  /// what its ranks' sums go over.
  std::string note;
  std::vector<int> ranks_before = {};             // each worker: of all workers before it
  bool nccl = false;                              // sums between ranks go over it
  bool cudnn = false;                             // which computes the attention of bf16 steps
  std::optional<DeviceAttention> attention = {};  // of the steps; nothing: as train.attention says

  [[nodiscard]] bool on_cuda() const { return !devices.empty(); }
  /// Ranks have one device after another, worker after worker; then the first one comes again.
  [[nodiscard]] const cuda::DeviceInfo& of(WorkerId worker, int rank = 0) const {
    const int place = ranks_before[static_cast<std::size_t>(worker.value())] + rank;
    return devices[static_cast<std::size_t>(place) % devices.size()];
  }
};

/// As train.device asks for it, for the workers `plan` has in this process. With "auto" the CPU
/// where no device fits; a run that is `simulated` computes on the CPU whatever is asked for.
/// THROWS: ConfigError where a device is asked for that is not there or does not compute this run,
/// and where the table beside the program (app/train/matmul_choices.h) is none;
/// OutOfDeviceMemory where the run takes more memory than it has free; SystemError where the device
/// fails device_self_check (inner/cuda/device_check.h), and for a driver or a library that is
/// missing or of a version that this build cannot use.
[[nodiscard]] DeviceChoice choose_device(const Config& config, const TrainingPlan& plan,
                                         const ModelLayout& layout, bool simulated);

/// Why no run can be on this machine's devices: there is none, one is too old, a library is not
/// found; empty where runs can.
[[nodiscard]] std::string no_device_here();

/// By name, not only where there is one.
[[nodiscard]] bool asks_for_cuda(const Config& config);

/// "cpu", "cuda:0 NVIDIA H100 (80.0 GB)", several with commas: those of the workers in this
/// process.
[[nodiscard]] std::string device_text(const DeviceChoice& choice, const TrainingPlan& plan);
[[nodiscard]] std::string device_text(const cuda::DeviceInfo& device);

/// Worker `rank`'s inner loop where it was chosen to be. Its device, of several the first, becomes
/// the calling thread's, which then drives the loop.
[[nodiscard]] std::unique_ptr<InnerLoop> make_inner_loop(const DeviceChoice& choice, WorkerId rank,
                                                         const LanguageModelOptions& options,
                                                         BatchProvider batches);

}  // namespace isthmus::app
