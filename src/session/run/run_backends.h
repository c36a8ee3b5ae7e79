// SPDX-License-Identifier: Apache-2.0
// The worlds of a run: real threads in this process; one site of several in separate processes; or
// virtual time over simulated links. Same workers, same exchange, same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/events.h"
#include "isthmus/config.h"
#include "isthmus/transport.h"
#include "record/round_times.h"
#include "session/run/run_plan.h"
#include "session/run/worker_site.h"
#include "sim/link.h"

namespace isthmus::app {

class StatusBoard;

/// Facts that both worlds need; borrowed.
struct RunWorld {
  const Config& config;
  const RunPlan& plan;
  bool simulated = false;
  double byte_scale = 1;  // bytes on the modelled link per byte of this model
  int slots = 0;          // simulated: compute regions whose real work runs at once; 0: all cores
  Duration begun{0};      // simulated: the run's clock at the start of this session
  bool emulated = false;  // real threads and sockets, behind the declared links, in real time
  WorkerSite* site = nullptr;  // this process is one site; the others are elsewhere
  EventSink* events = nullptr;
  StatusBoard* status = nullptr;  // told of links between workers of this process; may be null
};

/// Whether the run takes real time over links: emulated ones, or those between separate sites.
[[nodiscard]] bool has_real_links(const RunWorld& world);

struct WorldResult {                                // of this session; empty on real threads
  std::vector<std::vector<std::uint64_t>> traffic;  // bytes from i to j
  std::optional<std::uint64_t> trace_hash;          // equal for equal simulations
  RoundTimes rounds;                                // over links: of worker 0, or of this site
};

/// Runs all workers of this process to the end. `body`: of each worker, on its own task. THROWS:
/// the first worker's failure.
[[nodiscard]] WorldResult run_workers(const RunWorld& world,
                                      const std::function<void(WorkerContext&)>& body);

/// The options of the declared links.
[[nodiscard]] LinkOptions link_options(const RunWorld& world);

}  // namespace isthmus::app
