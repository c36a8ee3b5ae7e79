// SPDX-License-Identifier: Apache-2.0
// A whole run in virtual time: the same worker body as `run_in_process` (isthmus/transport.h), over
// simulated links. Given equal options and body, the values computed, the virtual times and the
// trace hash are the same on every run and machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "isthmus/transport.h"
#include "sim/network.h"
#include "sim/world.h"
#include "transport/exchange/peer_exchange.h"

namespace isthmus {

struct SimulationOptions {
  int workers = 1;
  /// workers x workers, row-major [from][to] (sim/topology.h makes them from a configuration);
  /// empty: free links.
  std::vector<DirectedLink> links;
  std::uint64_t seed = 0;
  SimWorldOptions world;
  NetworkOptions network;  // link model, rate profiles, faults, event sink
  PeerExchangeOptions exchange;
  /// Makes the exchange between workers, if it is not that of runs (then `exchange` is ignored).
  /// Called once a worker, in its task; its arguments outlive the result.
  std::function<std::unique_ptr<Exchange>(Transport&, Runtime&)> make_exchange = {};
};

struct SimulationResult {
  Duration duration{0};                             // virtual time at which the last body returned
  std::uint64_t trace_hash = 0;                     // equal for equal simulations
  std::uint64_t switches = 0;                       // of the baton between threads
  std::vector<std::vector<std::uint64_t>> traffic;  // bytes [from][to] on the modelled links
  FaultCounts faults;
  std::vector<WorkerId> crashed;  // ranks ended by planned crashes, in order
};

/// Runs `body` once for each worker, each as a task of one SimWorld. Blocks until all have
/// returned. Compute regions take the time that the body states; otherwise only links take time.
/// THROWS: ConfigError; the exception of the worker that failed first in virtual time;
/// DeadlockError.
SimulationResult run_simulated(const SimulationOptions& options,
                               const std::function<void(WorkerContext&)>& body);

}  // namespace isthmus
