// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/collectives/nccl_communicator.h"

namespace isthmus {

namespace {

constexpr const char* kWhy =
    "communicator \"nccl\": this build has no NCCL; install the CUDA toolkit and nccl.h (2.18 or "
    "later), configure and build again, or use \"threads\" (ranks of one process) or \"mpi\" "
    "(mpirun)";

}  // namespace

int nccl_devices() { throw SystemError(kWhy); }

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> ranks, int,
                                                     std::chrono::milliseconds) {
  ranks->abort(kWhy);
  throw SystemError(kWhy);
}

}  // namespace isthmus
