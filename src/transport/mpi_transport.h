// SPDX-License-Identifier: Apache-2.0
// NetworkTransport over MPI: the processes that mpirun or srun has started are the members, in rank
// order. Membership is fixed, and MPI tells nobody that a process has died: its launcher ends the
// others. One in a process; made, used to the end and destroyed once, since MPI starts only once.
// Frames that nobody has taken lie in memory: the rounds that are open bound them.
#pragma once

#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/network_transport.h"

namespace isthmus {

struct MpiPlace {
  Rank self;
  int members = 1;
};

/// Starts MPI where that has not been done. RETURNS: this process's place among all.
/// THROWS: SystemError when MPI refuses, or by name when this build has none.
[[nodiscard]] MpiPlace mpi_place();

/// Its task polls, at most a millisecond apart. `runtime` is borrowed and outlives it; `linger`:
/// how long a close waits for the others' farewell. THROWS: as mpi_place.
[[nodiscard]] std::unique_ptr<NetworkTransport> make_mpi_transport(Runtime& runtime,
                                                                   Duration linger);

/// "Open MPI v4.1.4, ..."; empty: this build has none.
[[nodiscard]] std::string mpi_version();

}  // namespace isthmus
