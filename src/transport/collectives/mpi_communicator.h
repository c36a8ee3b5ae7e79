// SPDX-License-Identifier: Apache-2.0
// Communicators of the processes started by mpirun or srun, of all or of one site (split_mpi_job in
// mpi_transport.h), one rank each. MPI only transports bytes; values are reduced here, in rank
// order, because MPI's reductions choose their own order. Every call polls, so it ends at the
// deadline. MPI does not report a dead process: its launcher ends the job.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// For all processes of the job, or after split_mpi_job for those of this process's site; starts
/// MPI unless it is running. Collective over them. `deadline`: how long a call waits for the other
/// ranks. `places`: the ranks' descriptions in errors (RankNames). THROWS: SystemError when MPI
/// refuses, or naming MPI when this build has none.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    std::chrono::milliseconds deadline, std::vector<std::string> places = {});

/// Finalizes MPI if it is running, and waits for all processes of the job; does nothing if this
/// process's transport has missed a member's farewell, since that member may never come. Call it
/// when no communicator is left, on the thread that created the first. A process that ends with an
/// error does not call it: the launcher then ends the others.
void finish_mpi();

}  // namespace isthmus
