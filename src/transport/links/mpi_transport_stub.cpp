// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/links/mpi_transport.h"

namespace isthmus {
namespace {

[[noreturn]] void refuse() {
  throw SystemError(
      "net.transport = \"mpi\": this build has no MPI (no wheel or tarball has, since the library "
      "must be mpirun's own); apt install libopenmpi-dev openmpi-bin, configure and build again "
      "(isthmus doctor lists what there is)");
}

}  // namespace

MpiPlace mpi_place() { refuse(); }
void split_mpi_job(int) { refuse(); }
std::unique_ptr<NetworkTransport> make_mpi_transport(Runtime&, Duration) { refuse(); }
std::string mpi_version() { return {}; }
std::string mpi_built_with() { return {}; }

}  // namespace isthmus
