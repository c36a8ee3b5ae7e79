// SPDX-License-Identifier: Apache-2.0
// A declared link in front of a real transport: each frame is held back, in real time, for the
// link's duration (sim/link_queue.h, the arithmetic of simulations), and then passed to the
// transport below. So one file can be simulated, and then run over real sockets and threads with
// the same links, without privileges. The time of the transport below is added.
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
  std::vector<DirectedLink> links;  // of this member, by receiver; its own entry is ignored
  LinkOptions link = {};
  std::uint64_t seed = 0;       // of jitter: the same as in the run's simulation
  EventSink* events = nullptr;  // sends, on the declared link; borrowed, may be null
};

/// Borrows `runtime`. A close first sends held frames, for at most five seconds. Frames are not
/// copied; those that the link has not sent yet are kept here. THROWS: ConfigError for an invalid
/// link.
[[nodiscard]] std::unique_ptr<Transport> emulate_links(Runtime& runtime,
                                                       std::unique_ptr<Transport> below,
                                                       const EmulationOptions& options);

}  // namespace isthmus
