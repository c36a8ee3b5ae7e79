// SPDX-License-Identifier: Apache-2.0
// The half of fake_nccl.h that stands for the CUDA runtime: memory, streams, events.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

#include "transport/collectives/nccl_calls.h"

namespace isthmus::testing_support {

/// The functions of CUDA; those of NCCL are null.
[[nodiscard]] NcclCalls fake_cuda();
/// Of everything in both fakes.
[[nodiscard]] std::mutex& fake_cuda_mutex();
void expect_fake_cuda_clean();
/// From now on memory of another emulation counts too: `device_of` says on which device an address
/// lies; negative: on none.
void lend_fake_memory(std::function<int(const void*)> device_of);
/// From now on events that are no fake ones are that emulation's: `wait_for` is asked when a stream
/// is to wait for one, and what it returns whenever somebody looks at the stream, until it says
/// that the event is reached.
void lend_fake_events(std::function<std::function<bool()>(void* event)> wait_for);
/// The most entries of a stream (waits, launches, ends) at once, since this was asked last.
[[nodiscard]] std::size_t take_fake_queue_length();
/// RETURNS: the number of streams that nobody has given back. All that is left is forgotten.
int forget_fake_cuda();

// Under fake_cuda_mutex():
/// Fails the test unless the bytes are memory of the device.
void expect_fake_memory(const void* data, std::size_t bytes, int device);
/// `step` is asked whenever somebody looks at the stream, until it says that it has ended.
void queue_on_fake_stream(cudaStream_t stream, std::function<bool()> step);
[[nodiscard]] int fake_stream_device(cudaStream_t stream);
/// The calling thread's.
[[nodiscard]] int fake_current_device();

}  // namespace isthmus::testing_support
