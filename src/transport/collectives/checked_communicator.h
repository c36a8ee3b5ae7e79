// SPDX-License-Identifier: Apache-2.0
// The Communicator in front of every back end: checks arguments, runs started operations on its own
// thread, and makes blocking calls wait for them.
#pragma once

#include <memory>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator.h"
#include "transport/collectives/communicator_call.h"

namespace isthmus {

/// `runtime` is shared by the communicators of a process and those split from them.
[[nodiscard]] std::unique_ptr<Communicator> make_checked_communicator(
    std::shared_ptr<Runtime> runtime, std::unique_ptr<CommunicatorBackend> backend);

}  // namespace isthmus
