// SPDX-License-Identifier: Apache-2.0
// Communicators of processes of one machine, over shared memory. Each rank copies its values into a
// room that the others read, piece by piece, and reduces its part of each piece in rank order; so
// results have the same bits as on all back ends. Messages go over the communicator by which the
// ranks have met.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/collectives/shared_segment.h"

namespace isthmus {

/// Collective. `ranks` (MPI, or threads) has the same ranks, is used by no other code afterwards,
/// and has its own deadline; `deadline`: how long a call waits for the other ranks at each of its
/// crossings, of which a call with more values than a room has several. `places`: the ranks'
/// descriptions in errors (RankNames). REQUIRES: fewer than 2047 ranks. THROWS, as its split does:
/// SystemError on all ranks when they are not processes of one machine, or its shared memory is
/// full: half a MiB a rank for a group of several.
[[nodiscard]] std::unique_ptr<Communicator> make_shared_memory_communicator(
    std::unique_ptr<Communicator> ranks, std::chrono::milliseconds deadline,
    std::vector<std::string> places = {}, SegmentCalls segments = {});

}  // namespace isthmus
