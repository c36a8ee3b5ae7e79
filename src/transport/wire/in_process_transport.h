// SPDX-License-Identifier: Apache-2.0
// Members in one process, connected by queues in memory: a sent frame arrives at once. Works under
// any Runtime; under SimWorld it is a network without delay.
#pragma once

#include <memory>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// Endpoints of members 0 .. members-1. `runtime` is borrowed and outlives them; they may be used
/// and destroyed in any order, and destruction closes an endpoint. Queues are unbounded: the
/// protocol above bounds its frames in flight. REQUIRES: members >= 1.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_in_process_transports(Runtime& runtime,
                                                                                 int members);

}  // namespace isthmus
