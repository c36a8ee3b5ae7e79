// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_backends.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "record/measured_rounds.h"
#include "record/status_board.h"
#include "session/run/owner_shares.h"
#include "session/run/run_settings.h"
#include "session/run/send_limit.h"
#include "sim/emulated_transport.h"
#include "sim/fault_schedule.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/exchange/run_in_process.h"
#include "transport/links/zmq/zmq_transport.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus::app {
namespace {

/// Members of this process, joined over loopback by sockets of their own.
std::vector<std::unique_ptr<Transport>> loopback_transports(const RunWorld& world,
                                                            Runtime& runtime) {
  const Config& config = world.config;
  std::vector<std::unique_ptr<NetworkTransport>> members;
  std::vector<std::string> endpoints;
  for (int m = 0; m < config.workers(); ++m) {
    MemberOptions member;
    const SiteConfig& site = config.sites[static_cast<std::size_t>(m)];
    member.self = WorkerId(m);
    member.members = config.workers();
    member.name = site.name;
    set_streams(member, config.net.streams);
    member.dead_after = config.net.dead_after;
    if (!world.emulated) {  // the declared links alone count there
      member.send_bits_per_s = send_limit(config, site);
    }
    member.on_event = [m, &world](const LinkEvent& event) {
      if (event.kind == LinkEvent::Kind::kDisconnected || event.kind == LinkEvent::Kind::kLost) {
        log_warning("link of {}: {}", world.config.sites[static_cast<std::size_t>(m)].name,
                    event.text);
      }
      if (world.status != nullptr) world.status->link(WorkerId(m), event);
    };
    members.push_back(make_zmq_transport(runtime, member));
    endpoints.push_back(members.back()->endpoint());
  }
  for (const auto& member : members) {
    member->join(endpoints);
  }
  for (const auto& member : members) {
    const auto joined = member->await_members(runtime.clock().now() + config.net.gather);
    if (!joined) {
      throw PeerError(
          fmt::format("the workers did not come together over loopback: {}", joined.error().what));
    }
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& member : members) {
    transports.push_back(std::move(member));
  }
  return transports;
}

/// The same behind the declared links; in memory where this build has no sockets.
std::vector<std::unique_ptr<Transport>> emulated_transports(const RunWorld& world,
                                                            Runtime& runtime) {
  const int workers = world.plan.workers;
  const std::vector<DirectedLink> links = link_matrix(world.config.links, site_names(world.config));
  std::vector<std::unique_ptr<Transport>> below = zmq_version().empty()
                                                      ? make_in_process_transports(runtime, workers)
                                                      : loopback_transports(world, runtime);
  std::vector<std::unique_ptr<Transport>> members;
  for (int m = 0; m < workers; ++m) {
    const auto first = links.begin() + static_cast<std::ptrdiff_t>(m) * workers;
    EmulationOptions options;
    options.links.assign(first, first + workers);
    options.link = link_options(world);
    options.seed = world.config.run.seed;
    options.events = world.events;
    members.push_back(
        emulate_links(runtime, std::move(below[static_cast<std::size_t>(m)]), options));
  }
  return members;
}

}  // namespace

LinkOptions link_options(const RunWorld& world) {
  return {.model = world.config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
          .byte_scale = world.byte_scale};
}

WorldResult run_workers(const RunWorld& world, const std::function<void(WorkerContext&)>& body) {
  // Where a process has all workers and no links, there is nothing to measure.
  const bool over_links = world.simulated || world.emulated;
  MeasuredRounds rounds;
  const PeerExchangeOptions exchange{
      .retry_interval = kNothingIsLost,
      .shares = owner_shares(world.config),
      .groups = site_groups(world.config),
      .chunk_bytes = chunk_bytes(world.config),
      .run_key = run_key(world.config.run.seed, Stream::kRounding),
      .events = world.events,
      .on_round = [&](WorkerId self, const SyncId& id, Duration took) {
        if (over_links && self == WorkerId(0)) rounds.took(id, took);
      }};
  if (world.site != nullptr) {
    WorkerContext context{world.site->self(), world.plan.workers, world.site->exchange(),
                          world.site->runtime()};
    body(context);
    return {.rounds = world.site->rounds()};
  }
  if (world.emulated) {
    SystemRuntime runtime;
    run_over(runtime, emulated_transports(world, runtime), exchange, body);
    return {.rounds = rounds.so_far()};
  }
  if (!world.simulated && world.config.net.transport == "zmq") {
    SystemRuntime runtime;
    run_over(runtime, loopback_transports(world, runtime), exchange, body);
    return {};
  }
  if (!world.simulated) {
    run_in_process(world.plan.workers, exchange, body);
    return {};
  }
  const std::vector<std::string> sites = site_names(world.config);
  const auto traces = link_traces(world.config.links, sites, world.begun);
  const std::vector<DirectedLink> links =
      at_highest_rates(link_matrix(world.config.links, sites), traces, sites.size());
  const SimulationResult result = run_simulated(
      {.workers = world.plan.workers,
       .links = links,
       .seed = world.config.run.seed,
       .world = {.slots = world.slots},
       .network = {.link = link_options(world),
                   .profiles = fault_rates(world.config.faults, links, sites, world.begun, traces),
                   .events = world.events},
       .exchange = exchange},
      body);
  return {.traffic = result.traffic, .trace_hash = result.trace_hash, .rounds = rounds.so_far()};
}

bool has_real_links(const RunWorld& world) {
  if (world.emulated) return true;
  if (world.site == nullptr || world.config.links.empty()) return false;
  try {
    check_links(world.config);
  } catch (const ConfigError&) {
    return false;  // which `train` does not need: some pairs are declared
  }
  return true;
}

}  // namespace isthmus::app
