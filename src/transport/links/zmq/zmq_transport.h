// SPDX-License-Identifier: Apache-2.0
// NetworkTransport over ZeroMQ and TCP. One task of `runtime` owns all sockets: a ROUTER receives
// from all peers, and `streams` DEALERs a peer send to it, so every directed link has separate
// connections. Frames are sent without a copy; ZeroMQ's own queues hold a few messages, so the
// windows of link_flow.h bound the memory. Not for simulated runtimes.
#pragma once

#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"

namespace isthmus {

/// Binds. `runtime` is borrowed and outlives it. The destructor closes it and blocks for at most
/// `linger` and a moment; no thread and no socket is left. THROWS: ConfigError for invalid options;
/// SystemError when the address cannot be bound, or naming ZeroMQ when this build has none.
[[nodiscard]] std::unique_ptr<NetworkTransport> make_zmq_transport(Runtime& runtime,
                                                                   const MemberOptions& options);

/// "4.3.4"; empty: this build has none.
[[nodiscard]] std::string zmq_version();

}  // namespace isthmus
