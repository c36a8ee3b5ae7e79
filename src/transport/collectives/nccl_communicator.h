// SPDX-License-Identifier: Apache-2.0
// Communicators between GPUs, one rank a device. NCCL transfers and adds values; the ranks first
// meet over another communicator (nccl_group.h). Written against NCCL 2.28; run on a
// device with one rank, never with two.
//
// Values may be on the rank's own device, where they are used in place: work that writes them must
// have ended, and a call returns when its results are there. Other values, also pinned and managed
// ones, use staging memory of the size of the largest call, on the device and pinned on the host.
// Messages go over `ranks`, through the host: NCCL's messages have no tags and wait for their
// receiver.
//
// The destructor needs the other ranks to destroy theirs too, in the same order if there are
// several: NCCL waits for them. A rank without the others waits some seconds, then aborts its
// communicator, and leaks a thread, a stream and staging memory if NCCL does not return.
//
// DETERMINISM, where it is less than communicator.h promises:
//   - NCCL chooses the order of f32, f64 and bf16 sums by size, number of ranks, topology and
//     version, and may round bf16 in between. So all_reduce may differ from reduce_scatter and
//     all_gather in bits, and cuts into calls or another layout may change bits.
//   - The same calls of the same ranks on the same machines give the same bits again (NCCL: same
//     size, topology, algorithm), and all ranks get the same bits of an all_reduce as long as NCCL
//     reduces each value at one place and copies it; its documentation promises neither.
//   - Fully deterministic: sums of i32 and i64; kMax (floats are gathered and compared on the host
//     in rank order, since NCCL's maximum drops NaN); all calls that only transfer values. With two
//     ranks also f32, f64 and bf16 sums, as a + b = b + a.
#pragma once

#include <chrono>
#include <memory>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// Devices of this machine. THROWS: SystemError as make_nccl_communicator().
[[nodiscard]] int nccl_devices();

/// Collective. `ranks` (threads or MPI) has the same ranks, is used by no other code afterwards,
/// and has its own deadline; `device`: this rank's GPU, a different one for each rank of a machine;
/// `deadline`: of an operation on the device. Communicators of one device may be used at once if
/// all ranks start their operations in the same order. THROWS: SystemError naming what is missing
/// when this build or machine has no NCCL or no device; CommunicatorError on the other ranks then.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(
    std::unique_ptr<Communicator> ranks, int device, std::chrono::milliseconds deadline);

}  // namespace isthmus
