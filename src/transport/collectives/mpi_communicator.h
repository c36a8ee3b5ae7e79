// SPDX-License-Identifier: Apache-2.0
// Communicators of the processes that mpirun or srun has started, of all or of one site's
// (split_mpi_job in mpi_transport.h), one rank each. MPI carries bytes;
// what is reduced is reduced here, in rank order, because MPI's own reductions choose their order.
// Every call waits by testing, so it ends at the deadline. A process that dies ends the job: its
// launcher sees to that, MPI tells nobody.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// All processes of the job, or after split_mpi_job of this one's site; starts MPI where that has
/// not been done. Collective over them. `deadline`: how long a call waits for the other ranks.
/// `places`: what each is in errors (RankNames). THROWS: SystemError when MPI refuses, or by name
/// when this build has none.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    std::chrono::milliseconds deadline, std::vector<std::string> places = {});

/// Ends MPI where it was started and has not been ended, and waits there for all processes of the
/// job; does nothing where this process's transport has missed a member's farewell, since that one
/// may never come. Call it when no communicator is left, on the thread that made the first. A
/// process that ends because of an error leaves without: the launcher then ends the others.
void finish_mpi();

}  // namespace isthmus
