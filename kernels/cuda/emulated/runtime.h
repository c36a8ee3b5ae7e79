// SPDX-License-Identifier: Apache-2.0
// What tests can do to the emulated device.
#pragma once

#include <cstddef>
#include <functional>

namespace isthmus::cuda::emulated {

/// Memory of the device from now on; 4 GiB at first.
void set_device_memory(std::size_t bytes);
/// Of one array of pinned host memory the most from now on; no limit at first.
void set_largest_pinned(std::size_t bytes);

/// Queues work on the stream of this handle, as a library does that takes a cudaStream_t.
void queue(void* stream, std::function<void()> work);

}  // namespace isthmus::cuda::emulated
