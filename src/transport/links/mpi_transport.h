// SPDX-License-Identifier: Apache-2.0
// NetworkTransport over MPI: the members are the processes that mpirun or srun has started, in rank
// order; or, if each site has several ranks, the first rank of each site (split_mpi_job).
// Membership is fixed, and MPI does not report a dead process: its launcher ends the others. One
// transport a process, created, used and destroyed once: it finalizes MPI, which starts only once;
// in a split job finish_mpi does that. Untaken frames stay in memory, bounded by the open rounds.
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

/// Starts MPI unless it is running. RETURNS: this process's place among all. THROWS: SystemError
/// when MPI refuses, or naming MPI when this build has none.
[[nodiscard]] MpiPlace mpi_place();

/// For jobs with several processes a site: later communicators contain the processes with the same
/// `site`, in rank order, and the transport connects the first process of each site, sites
/// ascending; the other processes have no transport. Collective over the job, once, before the
/// transport and before a second thread exists; finish_mpi (mpi_communicator.h) then finalizes MPI.
/// REQUIRES: site >= 0. THROWS: as mpi_place.
void split_mpi_job(int site);

/// Its task polls, at most a millisecond apart. `runtime` is borrowed and outlives it; `linger`:
/// the timeout of a close for the others' farewell. Collective over the job, except after
/// split_mpi_job, where it does not wait. REQUIRES: this process is a member. THROWS: as mpi_place.
[[nodiscard]] std::unique_ptr<NetworkTransport> make_mpi_transport(Runtime& runtime,
                                                                   Duration linger);

/// "Open MPI v4.1.4, ..."; empty: this build has none.
[[nodiscard]] std::string mpi_version();
/// The library whose headers this build was compiled with: "Open MPI v4.1.4"; empty: unknown.
/// Another one may run, because the loader takes the first library that it finds.
[[nodiscard]] std::string mpi_built_with();

}  // namespace isthmus
