// SPDX-License-Identifier: Apache-2.0
// Communicators of processes of one machine, over memory that they share. Each rank copies its
// values into a room that the others read, piece by piece, and reduces its part of each piece in
// rank order; so results have the bits of all back ends. Messages go over the communicator by which
// the ranks have met.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/collectives/shared_segment.h"

namespace isthmus {

/// Collective. `ranks` (MPI, or threads) has the same ranks, is used by nobody else afterwards, and
/// has a deadline of its own; `deadline`: how long a call waits for the other ranks at each place
/// where it does, of which one of more values than a room has has several. `places`: what each is
/// in errors (RankNames). REQUIRES: fewer than 2047 ranks. THROWS, as a split of it does:
/// SystemError on all where they are not processes of one machine, or its shared memory is full:
/// half a MiB a rank of a group of several.
[[nodiscard]] std::unique_ptr<Communicator> make_shared_memory_communicator(
    std::unique_ptr<Communicator> ranks, std::chrono::milliseconds deadline,
    std::vector<std::string> places = {}, SegmentCalls segments = {});

}  // namespace isthmus
