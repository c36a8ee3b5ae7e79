// SPDX-License-Identifier: Apache-2.0
// NCCL and the CUDA runtime over memory of this process, one rank a thread, for tests without a
// GPU. As unfriendly as the real ones may be: what is queued happens only when somebody asks for
// it, launches settle late, an aborted rank leaves the others hanging. Misuse is a failure of the
// test: host memory given to NCCL, unlike calls, another device than the stream's, a communicator
// that is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "transport/collectives/communicator.h"
#include "transport/collectives/nccl_calls.h"

namespace isthmus::testing_support {

inline constexpr int kFakeDevices = 8;

[[nodiscard]] const NcclCalls& fake_nccl();

/// Fails the test when memory, streams, events or communicators have not been given back.
void expect_fake_nccl_clean();

/// From now on nothing that NCCL does on the device ends before it is aborted; or no longer so.
void stall_fake_device(int device, bool stalled);
/// The next state of a communicator of this device that is asked for is an error.
void break_fake_device(int device);
/// From now on aborts hold the calling thread.
void hold_fake_aborts();
/// Returns once the communicators there are have ended. RETURNS: their number.
int release_fake_aborts();
/// Copies between host and device since the last time this was asked.
[[nodiscard]] std::int64_t take_fake_copies();

/// run_ranks() (communicator_world.h) with a deadline for meetings, another for the devices.
void run_fake_ranks(int size, const std::function<void(Communicator&)>& body,
                    std::chrono::milliseconds meetings, std::chrono::milliseconds devices);

}  // namespace isthmus::testing_support
