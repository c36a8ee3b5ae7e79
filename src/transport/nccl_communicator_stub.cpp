// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/nccl_communicator.h"

namespace isthmus {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> ranks, int,
                                                     std::chrono::milliseconds) {
  const std::string why =
      "communicator \"nccl\": this build has no NCCL; install the CUDA toolkit and nccl.h (2.18 or "
      "later), configure and build again, or use \"threads\" (ranks of one process) or \"mpi\" "
      "(mpirun)";
  ranks->abort(why);
  throw SystemError(why);
}

}  // namespace isthmus
