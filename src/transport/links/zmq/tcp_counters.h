// SPDX-License-Identifier: Apache-2.0
// What the system's TCP knows of a connection. tcp_counters_linux.cpp asks Linux (TCP_INFO);
// elsewhere tcp_counters_none.cpp knows nothing.
#pragma once

#include <optional>

#include "transport/links/link_gauge.h"

namespace isthmus {

/// Of the socket `descriptor`, which may have been closed meanwhile. RETURNS: nothing when it is no
/// TCP connection, or the system does not tell.
[[nodiscard]] std::optional<LinkCounters> tcp_counters(int descriptor);

}  // namespace isthmus
