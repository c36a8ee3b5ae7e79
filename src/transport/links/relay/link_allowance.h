// SPDX-License-Identifier: Apache-2.0
// What the links of a member may take of what its process has: open files, and sockets of ZeroMQ.
#pragma once

#include "transport/links/network_transport.h"

namespace isthmus {

/// A connection is a DEALER and both ends of its monitor, each with a file to be woken by, and its
/// TCP connection; one more comes in return. Those to a peer that comes back, or that go another
/// way, may be there before those to its former process, or over the former way, end; one more to
/// a peer may try another way.
struct LinkAllowance {
  int streams = 0;  // to each peer
  int sockets = 0;
};
/// As many connections as there are files for, if those of the beginning have theirs.
/// THROWS: ConfigError when this process may not have so many open.
[[nodiscard]] LinkAllowance link_allowance(const MemberOptions& options);

/// Turns MemberOptions::detours off where only without them there are files for all, and warns. To
/// be called when all else is set, and before anything is made of the options.
void spare_detours(MemberOptions& options);

}  // namespace isthmus
