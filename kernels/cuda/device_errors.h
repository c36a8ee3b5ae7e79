// SPDX-License-Identifier: Apache-2.0
// Errors of a machine's devices, driver and libraries that end a run or prevent its start, with the
// texts that users read. runtime.cpp detects them on a device; the emulated device, whose failures
// tests cause, uses the same texts.
#pragma once

#include <optional>
#include <string>

#include "isthmus/errors.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// A device whose context has failed (an illegal access, a memory error, a device that has fallen
/// off the bus): every later call of this process on the device fails too. Results of work in
/// flight there are invalid.
class DeviceLost : public SystemError {
 public:
  using SystemError::SystemError;
};

/// Why an installed driver serves no device: it is too old for this build's runtime, or fails to
/// start. Empty if it serves a device, if it finds none, and if there is no driver.
[[nodiscard]] std::string driver_fault();

/// THROWS: DeviceLost when the calling thread's device has failed. Does not wait for work.
void check_alive();

/// "12.4" of 12040, as CUDA counts versions.
[[nodiscard]] inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The error of `call` on device `ordinal` (empty: unknown).
[[nodiscard]] inline std::string lost_device_text(std::optional<int> ordinal,
                                                  const std::string& call,
                                                  const std::string& answer) {
  return (ordinal ? "cuda:" + std::to_string(*ordinal) : "a CUDA device") + " is lost: " + call +
         ": " + answer +
         "; this process can use it no more; the same command with --resume auto goes on from the "
         "newest checkpoint; if it fails again look for \"Xid\" in dmesg, and hide the device with "
         "CUDA_VISIBLE_DEVICES or train with --device cpu";
}

/// driver: the newest CUDA version that it supports.
[[nodiscard]] inline std::string old_driver_text(int driver, int runtime) {
  const int major = runtime / 1000;  // oldest drivers per version: release notes of the CUDA
                                     // Toolkit
  const char* const oldest = major == 12   ? "525.60"
                             : major == 13 ? "580.65"
                                           : "of this CUDA's time";
  return "the NVIDIA driver is too old: it serves CUDA " + cuda_version_text(driver) +
         ", and this build's runtime is " + cuda_version_text(runtime) + "; install driver " +
         oldest + " or later, or train with --device cpu";
}

/// `call` found no memory; `free` is empty if the device does not report it.
[[nodiscard]] inline std::string no_memory_text(const std::string& call,
                                                const std::optional<DeviceMemory>& free) {
  const std::string left = free ? ": " + std::to_string(free->free_bytes) + " of " +
                                      std::to_string(free->total_bytes) + " bytes are free"
                                : "";
  return "CUDA: " + call + ": out of memory" + left +
         "; nvidia-smi names other processes that may have taken it";
}

}  // namespace isthmus::cuda
