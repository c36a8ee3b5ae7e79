// SPDX-License-Identifier: Apache-2.0
// Communicators between GPUs, one rank a device: not written yet, so that every build refuses.
#pragma once

#include <chrono>
#include <memory>

#include "transport/communicator.h"

namespace isthmus {

/// `ranks` carries what NCCL needs to find its members, and aborts. `device`: this rank's GPU.
/// THROWS: SystemError by name.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(
    std::unique_ptr<Communicator> ranks, int device, std::chrono::milliseconds deadline);

}  // namespace isthmus
