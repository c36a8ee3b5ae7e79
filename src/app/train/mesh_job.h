// SPDX-License-Identifier: Apache-2.0
// One site as an MPI job: its processes are the ranks of its mesh. The first one acts as the site:
// it trains, writes and communicates with other sites; the others compute on its request.
#pragma once

#include <functional>

#include "inner/mesh/rank_processes.h"
#include "isthmus/config.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// Runs `train` on the first process and serves it on the others, whose result is 0. Blocks until
/// the job ends. Starts MPI, and finalizes it unless it throws. THROWS: errors of `train`, after
/// telling the other ranks, a CommunicatorError as PeerError; errors of a rank that cannot serve
/// (memory, outer.placement), after telling them too; PeerError on ranks that lose the first.
[[nodiscard]] int run_mesh_job(const Config& config, WorkerId worker,
                               const std::function<int(RankProcesses& ranks)>& train);

}  // namespace isthmus::app
