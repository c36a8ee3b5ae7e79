// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/tcp_counters.h"

namespace isthmus {

std::optional<LinkCounters> tcp_counters(int) { return std::nullopt; }

}  // namespace isthmus
