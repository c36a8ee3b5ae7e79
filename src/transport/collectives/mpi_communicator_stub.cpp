// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/collectives/mpi_communicator.h"

namespace isthmus {

std::unique_ptr<Communicator> make_mpi_communicator(std::chrono::milliseconds,
                                                    std::vector<std::string>) {
  throw SystemError(
      "communicator \"mpi\": this build has no MPI; apt install libopenmpi-dev openmpi-bin, "
      "configure and build again (there are \"threads\" and \"self\"; isthmus doctor lists all)");
}
void finish_mpi() {}

}  // namespace isthmus
