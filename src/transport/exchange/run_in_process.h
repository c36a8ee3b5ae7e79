// SPDX-License-Identifier: Apache-2.0
// `run_in_process` of isthmus/transport.h with the exchange's options (an event sink, for example),
// or over any endpoints.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// THROWS: ConfigError for fewer than one worker, too; `on_start` in place of the comparison of
/// start terms.
void run_in_process(int workers, const PeerExchangeOptions& options,
                    const std::function<void(WorkerContext&)>& body);

/// Runs all members of a group whose endpoints are in this process, each on its own task. Blocks
/// until all have returned and the endpoints are closed. THROWS: the first failure.
void run_over(Runtime& runtime, const std::vector<std::unique_ptr<Transport>>& transports,
              const PeerExchangeOptions& options, const std::function<void(WorkerContext&)>& body);

}  // namespace isthmus
