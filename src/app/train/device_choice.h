// SPDX-License-Identifier: Apache-2.0
// The device of the inner loops of a process: the CPU, or CUDA devices shared by its workers.
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
  /// Without devices: why existing devices are not used, or empty. With a mesh on devices: how its
  /// ranks' sums travel.
  std::string note;
  std::vector<int> ranks_before = {};             // by worker: ranks of all earlier workers
  bool nccl = false;                              // sums between ranks use NCCL
  bool cudnn = false;                             // computes the attention of bf16 steps
  std::optional<DeviceAttention> attention = {};  // of the steps; nothing: as in train.attention

  [[nodiscard]] bool on_cuda() const { return !devices.empty(); }
  /// Ranks get the devices in order, worker after worker, and start again at the first one.
  [[nodiscard]] const cuda::DeviceInfo& of(WorkerId worker, int rank = 0) const {
    const int place = ranks_before[static_cast<std::size_t>(worker.value())] + rank;
    return devices[static_cast<std::size_t>(place) % devices.size()];
  }
};

/// The choice of train.device for the workers of `plan` in this process. With "auto" the CPU if no
/// device fits; a `simulated` run always computes on the CPU. THROWS: ConfigError when a requested
/// device is missing or cannot compute this run, and when the table next to the program
/// (app/train/matmul_choices.h) is invalid; OutOfDeviceMemory when the run needs more memory than
/// the device has free; SystemError when the device fails device_self_check
/// (inner/cuda/device_check.h), and for a driver or library that is missing or has an unsupported
/// version.
[[nodiscard]] DeviceChoice choose_device(const Config& config, const TrainingPlan& plan,
                                         const ModelLayout& layout, bool simulated);

/// Why no run can use this machine's devices: there is none, one is too old, or a library is
/// missing; empty if runs can.
[[nodiscard]] std::string no_device_here();

/// Whether CUDA is requested by name, not only if available.
[[nodiscard]] bool asks_for_cuda(const Config& config);

/// "cpu", "cuda:0 NVIDIA H100 (80.0 GB)", several with commas: the devices of this process's
/// workers.
[[nodiscard]] std::string device_text(const DeviceChoice& choice, const TrainingPlan& plan);
[[nodiscard]] std::string device_text(const cuda::DeviceInfo& device);

/// Worker `rank`'s inner loop on its chosen device. The device, the first of several, becomes the
/// calling thread's, and that thread then drives the loop.
[[nodiscard]] std::unique_ptr<InnerLoop> make_inner_loop(const DeviceChoice& choice, WorkerId rank,
                                                         const LanguageModelOptions& options,
                                                         BatchProvider batches);

}  // namespace isthmus::app
