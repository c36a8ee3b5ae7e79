// SPDX-License-Identifier: Apache-2.0
// What tests can set of the emulated device.
#pragma once

#include <cstddef>

namespace isthmus::cuda::emulated {

/// Memory of the device from now on; 4 GiB at first.
void set_device_memory(std::size_t bytes);

}  // namespace isthmus::cuda::emulated
