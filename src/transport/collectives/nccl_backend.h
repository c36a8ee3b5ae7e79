// SPDX-License-Identifier: Apache-2.0
// The communicator between GPUs, over any table of NCCL and CUDA functions.
#pragma once

#include <chrono>
#include <memory>

#include "transport/collectives/communicator.h"
#include "transport/collectives/nccl_calls.h"

namespace isthmus {

/// As make_nccl_communicator(). `calls` is borrowed: it must live as long as the process, since a
/// call that NCCL never ends may still use it.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator_over(
    const NcclCalls& calls, std::unique_ptr<Communicator> ranks, int device,
    std::chrono::milliseconds deadline);

}  // namespace isthmus
