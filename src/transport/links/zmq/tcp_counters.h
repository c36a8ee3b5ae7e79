// SPDX-License-Identifier: Apache-2.0
// TCP statistics of a connection. tcp_counters_linux.cpp asks Linux (TCP_INFO); elsewhere
// tcp_counters_none.cpp returns nothing.
#pragma once

#include <optional>

#include "transport/links/link_gauge.h"

namespace isthmus {

/// Of the socket `descriptor`, which may have been closed meanwhile. RETURNS: nothing when it is no
/// TCP connection, or the system does not report counters.
[[nodiscard]] std::optional<LinkCounters> tcp_counters(int descriptor);

}  // namespace isthmus
