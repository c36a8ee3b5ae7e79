// SPDX-License-Identifier: Apache-2.0
// The worlds a run can take place in: real threads in this process, one site of several that are
// processes of their own, or virtual time over simulated links. Same workers, same exchange, same
// bits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/site_session.h"
#include "app/training_plan.h"
#include "app/worker.h"
#include "inner/model_layout.h"
#include "plan/prediction.h"
#include "plan/round_times.h"

namespace isthmus::app {

/// What both worlds need to know; borrowed.
struct RunWorld {
  const Config& config;
  const TrainingPlan& plan;
  const ModelLayout& layout;
  const Dataset& data;
  bool simulated = false;
  double byte_scale = 1;  // bytes on the modelled link per byte of this model
  int slots = 0;          // simulated: compute regions whose real work runs at once; 0: all cores
  Duration begun{0};      // simulated: what the run's clock showed when this session began
  bool emulated = false;  // real threads and sockets, behind the declared links, in real time
  SiteSession* site = nullptr;  // this process is one site; the others are elsewhere
  EventSink* events = nullptr;
  StatusBoard* status = nullptr;  // told of links between workers of this process; may be null
};

/// Whether the run takes real time over links that its configuration declares: emulated ones, or
/// those between sites apart.
[[nodiscard]] bool has_real_links(const RunWorld& world);

struct WorldResult {                                // of this session; empty on real threads
  std::vector<std::vector<std::uint64_t>> traffic;  // bytes from i to j
  std::optional<std::uint64_t> trace_hash;          // equal for equal simulations
  RoundTimes rounds;  // over links, and of a site apart: at worker 0, or at the site
};

/// PeerExchangeOptions::chunk_bytes: net.chunk, which may say more than a frame ever holds.
[[nodiscard]] std::size_t chunk_bytes(const Config& config);

/// PeerExchangeOptions::groups by each site.group, whatever net.reduction is; none: no site has
/// one.
[[nodiscard]] std::vector<std::uint32_t> named_groups(const Config& config);
/// ... of a run: by net.reduction too.
[[nodiscard]] std::vector<std::uint32_t> site_groups(const Config& config);

/// Runs all workers of this process to the end. THROWS: the first worker's failure.
[[nodiscard]] WorldResult run_workers(const RunWorld& world, const WorkerSetup& setup);

/// The length of a simulated step follows from the configuration: [surrogate], sim.step_time, or
/// site.compute of every site.
[[nodiscard]] bool declares_step_time(const Config& config);

/// Floating-point operations of one worker's inner step (forward and backward).
[[nodiscard]] double step_flops(const RunWorld& world);

/// Real length of one inner step of worker 0, measured on this machine, where the configuration
/// declares none; else zero.
[[nodiscard]] Duration measure_step(const RunWorld& world);

/// The same, measured whatever is declared.
[[nodiscard]] Duration time_step(const RunWorld& world);

/// Whether rates of links change over time (link.trace).
[[nodiscard]] bool has_traces(const Config& config);
/// THROWS: ConfigError when two sites have no link.
void check_links(const Config& config);

/// What the closed form says of a run over declared links. `measured_steps`: one a worker, or one
/// for all; of steps that are not declared, over real links of all.
[[nodiscard]] Prediction predict_run(const RunWorld& world,
                                     const std::vector<Duration>& measured_steps);
/// ... and of its single rounds, at the worker whose rounds WorldResult has. Empty for methods of
/// which it does not say which step is which.
[[nodiscard]] RoundTimes predict_run_rounds(const RunWorld& world,
                                            const std::vector<Duration>& measured_steps);

}  // namespace isthmus::app
