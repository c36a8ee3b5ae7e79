// SPDX-License-Identifier: Apache-2.0
// `run_in_process` of isthmus/transport.h with the exchange's options: an event sink, for example.
#pragma once

#include <functional>

#include "isthmus/transport.h"
#include "transport/peer_exchange.h"

namespace isthmus {

void run_in_process(int workers, const PeerExchangeOptions& options,
                    const std::function<void(WorkerContext&)>& body);

}  // namespace isthmus
