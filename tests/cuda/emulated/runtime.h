// SPDX-License-Identifier: Apache-2.0
// What tests can do to the emulated device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "kernels/cuda/device.h"

namespace isthmus::cuda::emulated {

inline constexpr int kDevices = 2;

/// Memory of each device from now on; 4 GiB at first.
void set_device_memory(std::size_t bytes);
/// Of one array of pinned host memory the most from now on; no limit at first.
void set_largest_pinned(std::size_t bytes);

/// A device's name from now on.
void set_device_name(int ordinal, const std::string& name);

/// Shared memory that a block may have from now on; kMostSharedBytes at first. A launch with more
/// fails as on a device.
void set_shared_bytes(std::size_t bytes);

/// Faults, from now on: launches that fail as those of a device that no kernel was compiled for,
/// and products that come out larger by this factor.
void set_launches_fail(bool fail);
void set_product_factor(float factor);
/// Products since this was asked last for which the table of their Blas had a choice.
[[nodiscard]] int take_products_of_table();
/// ... and kernels that do nothing: those with a parameter whose type's name has this; empty: none.
void set_skipped_kernels(const std::string& parameter);

/// When streams that are made from now on do their work: as late as they may, when somebody waits
/// for it (at first); or as early as their waits allow, but for stream `late` of those, counted
/// from 0, which is late (-1: none is). What an early stream writes before the late one has read
/// it comes too early then.
void set_streams_late();
void set_streams_early(int late = -1);

/// ... and graphs that the device takes, once they have been recorded, or not.
void set_graphs_fail(bool fail);
struct GraphCounts {
  int recorded = 0, launched = 0;
  bool operator==(const GraphCounts&) const = default;
};
/// Of all devices, since this was asked last.
[[nodiscard]] GraphCounts take_graph_counts();

/// Why there is no cuDNN, from now on; there is at first.
void set_cudnn_missing(const std::string& why);
/// ... and why it has no plan for any layout; it has one at first.
void set_cudnn_without_plan(const std::string& why);

[[nodiscard]] Stream::Priority priority_of(const Stream& stream);
/// The device whose memory this is; -1: none's.
[[nodiscard]] int device_of(const void* data);

/// Queues work on the stream of this handle, as a library does that takes a cudaStream_t.
void queue(void* stream, std::function<void()> work);
/// What a library's own stream does that waits for the event (a handle) as it is recorded now: the
/// work before it, as late as that may be. RETURNS: whether it is reached.
[[nodiscard]] std::function<bool()> wait_for(void* event);

}  // namespace isthmus::cuda::emulated
