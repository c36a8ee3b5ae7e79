// SPDX-License-Identifier: Apache-2.0
// The use of a process's open files and ZeroMQ sockets by the links of a member.
#pragma once

#include "transport/links/network_transport.h"

namespace isthmus {

/// A connection needs a DEALER and both ends of its monitor, each with a wake-up file, and its TCP
/// connection; one more comes from the peer. The connections to a returning peer, or on another
/// path, may exist before the old ones end; one more connection a peer may try another path.
struct LinkAllowance {
  int streams = 0;  // to each peer
  int sockets = 0;
};
/// As many connections as files allow, at least the initial ones. THROWS: ConfigError when this
/// process may not open enough files for those.
[[nodiscard]] LinkAllowance link_allowance(const MemberOptions& options);

/// Disables MemberOptions::detours, with a warning, if only then files suffice for all connections.
/// Call when all other options are set, and before they are used.
void spare_detours(MemberOptions& options);

}  // namespace isthmus
