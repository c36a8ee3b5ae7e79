// SPDX-License-Identifier: Apache-2.0
// A declared link put before a real transport: each frame is held back, in real time, for as long
// as the link would take (sim/link_queue.h, the arithmetic that simulations use), and then handed
// to the transport below. So one file can be simulated, and then run over real sockets and threads
// with the same links; no privileges are needed. What the transport below takes comes on top.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/events.h"
#include "isthmus/runtime.h"
#include "sim/link.h"
#include "transport/wire/transport.h"

namespace isthmus {

struct EmulationOptions {
  std::vector<DirectedLink> links;  // of this member, by receiver; the own entry is not looked at
  LinkOptions link = {};
  std::uint64_t seed = 0;       // of jitter: as the simulation of the run has it
  EventSink* events = nullptr;  // sends, as the declared link sees them; borrowed, may be null
};

/// Borrows `runtime`. A close lets held frames out first, for at most five seconds. Frames are
/// copied nowhere; as many as the link is behind lie here. THROWS: ConfigError for a link that
/// cannot be.
[[nodiscard]] std::unique_ptr<Transport> emulate_links(Runtime& runtime,
                                                       std::unique_ptr<Transport> below,
                                                       const EmulationOptions& options);

}  // namespace isthmus
