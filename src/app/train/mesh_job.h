// SPDX-License-Identifier: Apache-2.0
// One site as an MPI job: its processes are the ranks of its mesh. The first is the site to
// everybody else, it trains, writes and speaks to other sites; the others compute what it asks for.
#pragma once

#include <functional>

#include "inner/mesh/rank_processes.h"
#include "isthmus/config.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// Runs `train` on the first process and serves it on the others, whose result is 0. Starts and
/// ends MPI. THROWS: what `train` throws, after telling the others; PeerError on ranks that lose
/// the first.
[[nodiscard]] int run_mesh_job(const Config& config, WorkerId worker,
                               const std::function<int(RankProcesses& ranks)>& train);

}  // namespace isthmus::app
