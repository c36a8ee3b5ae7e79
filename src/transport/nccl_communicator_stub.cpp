// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/nccl_communicator.h"

namespace isthmus {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator>, int,
                                                     std::chrono::milliseconds) {
  throw SystemError(
      "communicator \"nccl\": this version has no NCCL back end; use \"threads\" (ranks of one "
      "process) or \"mpi\" (mpirun)");
}

}  // namespace isthmus
