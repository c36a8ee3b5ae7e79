// SPDX-License-Identifier: Apache-2.0
// Frames that a state machine of the exchange wants to send. The machines are pure: the caller
// hands the frames to the transport, in their order.
#pragma once

#include <cstdint>
#include <vector>

#include "isthmus/transport.h"
#include "transport/wire/transport.h"

namespace isthmus {

struct Outgoing {
  WorkerId to;
  FrameBytes frame;
  std::uint64_t payload_bytes = 0;  // encoded values in it; 0 for a repeated frame
};
/// Frames to hand to the transport, in order.
using Outbox = std::vector<Outgoing>;

}  // namespace isthmus
