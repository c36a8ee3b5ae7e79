// SPDX-License-Identifier: Apache-2.0
// NetworkTransport over MPI: the processes that mpirun or srun has started are the members, in rank
// order, or where they are the ranks of several sites the first of each (split_mpi_job). Membership
// is fixed, and MPI tells nobody that a process has died: its launcher ends the others. One in a
// process; made, used to the end and destroyed once: it ends MPI, which starts only once, or in a
// split job leaves that to finish_mpi.
// Frames that nobody has taken lie in memory: the rounds that are open bound them.
#pragma once

#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"

namespace isthmus {

struct MpiPlace {
  WorkerId self;
  int members = 1;
};

/// Starts MPI where that has not been done. RETURNS: this process's place among all.
/// THROWS: SystemError when MPI refuses, or by name when this build has none.
[[nodiscard]] MpiPlace mpi_place();

/// For jobs whose sites are several processes each: communicators made from now on are of the
/// processes that say the same `site`, in the order of all, and the transport is of the first
/// process of each site, sites ascending; the others have none. Collective over the job, once,
/// before the transport and before there is a second thread; MPI is then ended by finish_mpi
/// (mpi_communicator.h). REQUIRES: site >= 0. THROWS: as mpi_place.
void split_mpi_job(int site);

/// Its task polls, at most a millisecond apart. `runtime` is borrowed and outlives it; `linger`:
/// how long a close waits for the others' farewell. Collective over the job, but after
/// split_mpi_job, where it waits for nobody. REQUIRES: this process is a member. THROWS: as
/// mpi_place.
[[nodiscard]] std::unique_ptr<NetworkTransport> make_mpi_transport(Runtime& runtime,
                                                                   Duration linger);

/// "Open MPI v4.1.4, ..."; empty: this build has none.
[[nodiscard]] std::string mpi_version();
/// The library whose headers this was compiled with: "Open MPI v4.1.4"; empty: not known. Another
/// one may run, because the loader takes the first that it finds.
[[nodiscard]] std::string mpi_built_with();

}  // namespace isthmus
