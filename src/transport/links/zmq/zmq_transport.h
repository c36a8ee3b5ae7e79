// SPDX-License-Identifier: Apache-2.0
// NetworkTransport over ZeroMQ and TCP. One task of `runtime` owns all sockets: a ROUTER takes in
// what others send, and `streams` DEALERs a peer carry what goes there, so every directed link has
// connections of its own. Frames go out without a copy; ZeroMQ's own queues are a few messages
// long, memory is bounded by the windows of link_flow.h. Not for simulated runtimes.
#pragma once

#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"

namespace isthmus {

/// Binds. `runtime` is borrowed and outlives it. Destroying it closes it and blocks for at most
/// `linger` and a moment; no thread and no socket is left.
/// THROWS: ConfigError for options that cannot be; SystemError when the address cannot be bound, or
/// by name when this build has no ZeroMQ.
[[nodiscard]] std::unique_ptr<NetworkTransport> make_zmq_transport(Runtime& runtime,
                                                                   const MemberOptions& options);

/// "4.3.4"; empty: this build has none.
[[nodiscard]] std::string zmq_version();

}  // namespace isthmus
