// SPDX-License-Identifier: Apache-2.0
// Devices, drivers and libraries that fail, on the emulated device: by a call of a test, or of a
// whole program by the environment,
//   ISTHMUS_EMULATED_FAULT=lost:DEVICE:KERNELS[:PATH]    the device fails while it computes
//                          memory:DEVICE:KERNELS[:PATH]  launches find no memory
//                          bytes:BYTES                   memory of each device
//                          driver:VERSION                the driver serves CUDA VERSION (12040)
//                          products:WHY                  cuBLASLt cannot be used
//                          cudnn:WHY                     nor cuDNN
// KERNELS: how many kernels come before it, counted from when PATH exists.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/cuda/device.h"

namespace isthmus::cuda::emulated {

/// The device fails once it has begun `kernels` more kernels: that one and all later work is not
/// done, events count as reached, and from then on every call throws DeviceLost.
void lose_device(int ordinal, int kernels);
/// Launches and graphs find no memory, after `kernels` more of them.
void exhaust_launches(int ordinal, int kernels);
/// What driver_fault says from now on; no device can be used then. Empty: as at first.
void set_driver_fault(const std::string& why);
/// What products_missing says from now on.
void set_products_missing(const std::string& why);
/// All devices work, from now on.
void end_faults();

// For the emulated device, which calls them under its lock.
/// RETURNS: whether the device computes a kernel that comes up.
[[nodiscard]] bool begins_kernel(int ordinal);
[[nodiscard]] bool is_lost(int ordinal);
/// THROWS: DeviceLost as the answer to `call`, of a lost device.
void refuse_lost(int ordinal, const char* call);
/// THROWS: OutOfDeviceMemory where the launch is to find none.
void refuse_launch(int ordinal, const char* call, const DeviceMemory& free);
[[nodiscard]] std::string products_fault();
/// Of the environment: bytes of each device, and why there is no cuDNN.
[[nodiscard]] std::optional<std::size_t> bytes_from_environment();
[[nodiscard]] std::string cudnn_fault_from_environment();

}  // namespace isthmus::cuda::emulated
