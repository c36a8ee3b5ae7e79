// SPDX-License-Identifier: Apache-2.0
// What a machine's devices, driver and libraries may answer that ends a run or keeps it from
// beginning, in the words that users read. runtime.cpp finds it on a device; the emulated device,
// which tests make fail, says it in the same words.
#pragma once

#include <optional>
#include <string>

#include "isthmus/errors.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// A device whose context has failed (an illegal access, a memory error, a device that has fallen
/// off the bus): every later call of this process on the device fails alike. Nothing that was under
/// way there counts.
class DeviceLost : public SystemError {
 public:
  using SystemError::SystemError;
};

/// Why a driver that is installed serves no device: it is too old for this build's runtime, or its
/// start fails. Empty where it serves one, where it finds none, and where there is no driver.
[[nodiscard]] std::string driver_fault();

/// THROWS: DeviceLost where the calling thread's device has failed. Waits for no work.
void check_alive();

/// "12.4" of 12040, as CUDA counts versions.
[[nodiscard]] inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Device `ordinal` (empty: not known) has answered `call` so.
[[nodiscard]] inline std::string lost_device_text(std::optional<int> ordinal,
                                                  const std::string& call,
                                                  const std::string& answer) {
  return (ordinal ? "cuda:" + std::to_string(*ordinal) : "a CUDA device") + " is lost: " + call +
         ": " + answer +
         "; this process can use it no more; the same command with --resume auto goes on from the "
         "newest checkpoint; if it fails again look for \"Xid\" in dmesg, and hide the device with "
         "CUDA_VISIBLE_DEVICES or train with --device cpu";
}

/// driver: the newest CUDA that it serves.
[[nodiscard]] inline std::string old_driver_text(int driver, int runtime) {
  const int major = runtime / 1000;  // the oldest drivers: release notes of the CUDA Toolkit
  const char* const oldest = major == 12   ? "525.60"
                             : major == 13 ? "580.65"
                                           : "of this CUDA's time";
  return "the NVIDIA driver is too old: it serves CUDA " + cuda_version_text(driver) +
         ", and this build's runtime is " + cuda_version_text(runtime) + "; install driver " +
         oldest + " or later, or train with --device cpu";
}

/// `call` found no memory; `free` is empty where the device does not say what is.
[[nodiscard]] inline std::string no_memory_text(const std::string& call,
                                                const std::optional<DeviceMemory>& free) {
  const std::string left = free ? ": " + std::to_string(free->free_bytes) + " of " +
                                      std::to_string(free->total_bytes) + " bytes are free"
                                : "";
  return "CUDA: " + call + ": out of memory" + left +
         "; nvidia-smi names other processes that may have taken it";
}

}  // namespace isthmus::cuda
