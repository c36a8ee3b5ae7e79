// SPDX-License-Identifier: Apache-2.0
// Communicators between GPUs, one rank a device. NCCL moves and adds values; the ranks meet over
// another communicator first (nccl_group.h). Written against NCCL 2.28; never run on a device.
//
// Values may lie on the rank's own device, where they are used in place: what writes them must have
// ended, and a call returns when its results are there. Other values, pinned and managed ones too,
// go through staging memory of the size of the largest call, on the device and pinned on the host.
// Messages go over `ranks`, by way of the host: NCCL's know no tags and wait for their receiver.
//
// Destroying one needs the other ranks to destroy theirs too, in the same order where there are
// several: NCCL waits for them. A rank that is alone waits some seconds, then aborts its own, and
// leaves a thread, a stream and staging memory behind for good if NCCL does not let go of it.
//
// DETERMINISM, where it is less than communicator.h promises:
//  - Sums of f32, f64 and bf16 have the order that NCCL chooses, by size, number of ranks, topology
//    and version; bf16 may be rounded on the way. So all_reduce need not have the bits of
//    reduce_scatter and all_gather, cuts into calls may change bits, and so may another layout.
//  - The same calls of the same ranks on the same machines give the same bits again (NCCL: same
//    size, topology, algorithm), and one all_reduce the same on all ranks as long as NCCL reduces
//    each value at one place and copies it; its documents promise neither.
//  - In full: sums of i32 and i64, kMax (floats are gathered and compared on the host in rank
//    order, since NCCL's maximum drops NaN), everything that only moves values. Two ranks: f32, f64
//    and bf16 sums too, a + b being b + a.
#pragma once

#include <chrono>
#include <memory>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// Devices of this machine. THROWS: SystemError as make_nccl_communicator().
[[nodiscard]] int nccl_devices();

/// Collective. `ranks` (threads or MPI) has the same ranks, is used by nobody else afterwards, and
/// has a deadline of its own; `device`: this rank's GPU, another one for each rank of a machine;
/// `deadline`: how long the device may take for an operation. Communicators of one device may be
/// used at once, if all ranks start their operations in the same order.
/// THROWS: SystemError by name where this build or machine has no NCCL or no device, and
/// CommunicatorError on the others then.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(
    std::unique_ptr<Communicator> ranks, int device, std::chrono::milliseconds deadline);

}  // namespace isthmus
