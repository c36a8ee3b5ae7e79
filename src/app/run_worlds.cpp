// SPDX-License-Identifier: Apache-2.0
#include "app/run_worlds.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "app/measured_rounds.h"
#include "app/offload.h"
#include "app/owner_shares.h"
#include "app/run_parts.h"
#include "app/site_links.h"
#include "app/status_board.h"
#include "core/log.h"
#include "core/system_runtime.h"
#include "inner/model_cost.h"
#include "isthmus/errors.h"
#include "sim/emulated_transport.h"
#include "sim/fault_schedule.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/in_process_transport.h"
#include "transport/run_in_process.h"
#include "transport/zmq_transport.h"

namespace isthmus::app {
namespace {

/// A loop's parameters where they are.
class OwnParameters final : public ParameterSource {
 public:
  explicit OwnParameters(std::span<const Parameter> parameters) : parameters_(parameters) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return parameters_[parameter].values;
  }

 private:
  std::span<const Parameter> parameters_;
};

std::vector<std::string> site_names(const Config& config) {
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) {
    names.push_back(site.name);
  }
  return names;
}

/// Members of this process, joined over loopback by sockets of their own.
std::vector<std::unique_ptr<Transport>> loopback_transports(const RunWorld& world,
                                                            Runtime& runtime) {
  const Config& config = world.config;
  std::vector<std::unique_ptr<NetworkTransport>> members;
  std::vector<std::string> endpoints;
  for (int m = 0; m < config.workers(); ++m) {
    MemberOptions member;
    const SiteConfig& site = config.sites[static_cast<std::size_t>(m)];
    member.self = Rank(m);
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
      if (world.status != nullptr) world.status->link(Rank(m), event);
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

LinkOptions link_options(const RunWorld& world) {
  return {.model = world.config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
          .byte_scale = world.byte_scale};
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

/// Connections of a link between processes. "auto" (0) ends with the most where loss binds.
int streams_over(const DirectedLink& link, int configured) {
  if (configured > 0) return configured;
  const bool grows = link.loss > 0 && link.congestion == Congestion::kCubic;
  return grows ? kMostStreams : kFewestStreams;
}

}  // namespace

WorldResult run_workers(const RunWorld& world, const WorkerSetup& setup) {
  const auto body = [&](WorkerContext& context) { run_worker(setup, context); };
  // Where a process has all workers and no links, there is nothing to measure.
  const bool over_links = world.simulated || world.emulated;
  MeasuredRounds rounds;
  const PeerExchangeOptions exchange{
      .retry_interval = kNothingIsLost,
      .shares = owner_shares(world.config),
      .table = table_of_shares(world.config),
      .groups = site_groups(world.config),
      .chunk_bytes = chunk_bytes(world.config),
      .run_key = run_key(world.config.run.seed, Stream::kRounding),
      .events = world.events,
      .moves_shares = over_links && world.config.net.shares == "measured",
      .on_shares =
          [&world](const ShareMove& move) {
            log_info("{}", words_of(move, site_names(world.config)));
          },
      .on_round =
          [&](Rank self, const SyncId& id, Duration took) {
            if (over_links && self == Rank(0)) rounds.took(id, took);
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

std::size_t chunk_bytes(const Config& config) {
  return std::min(static_cast<std::size_t>(config.net.chunk), kMaxPartBytes);
}

std::vector<std::uint32_t> site_groups(const Config& config) {
  return config.net.reduction == "groups" ? named_groups(config) : std::vector<std::uint32_t>();
}

std::vector<std::uint32_t> named_groups(const Config& config) {
  std::vector<std::uint32_t> groups;
  if (std::ranges::all_of(config.sites, [](const auto& site) { return site.group.empty(); })) {
    return groups;
  }
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    const std::string& name = config.sites[i].group;
    std::size_t first = i;  // a group is known by its first site
    for (std::size_t j = 0; j < i && !name.empty() && first == i; ++j) {
      if (config.sites[j].group == name) first = j;
    }
    groups.push_back(static_cast<std::uint32_t>(first));
  }
  return groups;
}

bool has_traces(const Config& config) {
  return std::ranges::any_of(config.links, [](const auto& link) { return !link.trace.empty(); });
}

void check_links(const Config& config) { (void)link_matrix(config.links, site_names(config)); }

bool declares_step_time(const Config& config) {
  bool every_site = true;
  for (const SiteConfig& site : config.sites) {
    every_site = every_site && site.compute_flops > 0;
  }
  return config.surrogate || config.sim.step_time > Duration{0} || every_site;
}

double step_flops(const RunWorld& world) {
  // Two forward passes instead of one and a backward pass, which is two.
  const double passes = forward_only(world.config) ? 2.0 / 3.0 : 1.0;
  return passes * training_flops_per_token(world.layout, world.config.train.context) *
         static_cast<double>(world.plan.worker_samples * world.config.train.context);
}

Duration measure_step(const RunWorld& world) {
  return declares_step_time(world.config) ? Duration{0} : time_step(world);
}

Duration time_step(const RunWorld& world) {
  const auto files = make_state_memory(world.config, Rank(0), nullptr, nullptr);
  const StateMemoryScope scope(files.get());
  BatchSource source(world.data, batch_plan(world.config, world.plan), 0);
  LanguageModelLoop loop(language_model_options(world.config, world.plan, Rank(0)),
                         [&](StepIndex t) { return source.at(t.value() - 1); });
  SystemRuntime runtime;
  Duration best = Duration::max();
  constexpr int kRepetitions = 3;  // the first one also touches the memory
  for (int i = 0; i < kRepetitions; ++i) {
    const TimePoint begin = runtime.clock().now();
    if (forward_only(world.config)) {
      const OwnParameters own(loop.parameters());
      (void)loop.train_loss(StepIndex(1), {}, own);
      (void)loop.train_loss(StepIndex(1), {}, own);
    } else {
      loop.gradients(StepIndex(1), {});
    }
    best = std::min(best, runtime.clock().now() - begin);
  }
  return best;
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

namespace {

/// What is predicted, one stretch of the run after the other.
std::vector<PredictionInput> stretches_of(const RunWorld& world,
                                          const std::vector<Duration>& measured_steps) {
  Config config = world.config;
  if (!world.simulated && has_real_links(world)) {  // nothing declared holds for real computing
    config.sim.step_time = Duration{0};
    for (SiteConfig& site : config.sites) {
      site.compute_flops = 0;
      site.jitter = 0;
    }
  }
  std::vector<StepClock> clocks;
  for (int m = 0; m < world.plan.workers; ++m) {
    const std::size_t own = measured_steps.size() == 1 ? 0 : static_cast<std::size_t>(m);
    clocks.push_back(make_step_clock(config, Rank(m), step_flops(world), measured_steps.at(own)));
  }
  std::int64_t done = 0;
  std::vector<PredictionInput> stretches =
      prediction_phases(config.method, config.outer, parameters_without_values(world.layout),
                        world.plan.workers, world.plan.total_steps);
  for (PredictionInput& input : stretches) {
    input.step_time = [clocks, done](Rank rank, StepIndex t) {
      return clocks[static_cast<std::size_t>(rank.value())](StepIndex(done + t.value()));
    };
    input.links = link_matrix(config.links, site_names(config));
    for (DirectedLink& link : input.links) {
      if (world.site != nullptr) link.streams = streams_over(link, config.net.streams);
    }
    input.link = link_options(world);
    input.shares = settled_shares(config);
    input.table = table_of_shares(config);
    input.groups = site_groups(config);
    input.chunk_bytes = chunk_bytes(config);
    done += input.steps;
  }
  return stretches;
}

}  // namespace

Prediction predict_run(const RunWorld& world, const std::vector<Duration>& measured_steps) {
  std::optional<Prediction> whole;
  for (const PredictionInput& input : stretches_of(world, measured_steps)) {
    const Prediction next = predict(input);
    whole = whole ? one_after_another(*whole, next) : next;
  }
  for (PredictionTerm& term : whole->terms) {  // shown wherever they are
    if (has_traces(world.config) && term.name == "payload on the link") {
      term.formula += "; of rates over time (link.trace) the mean";
    }
  }
  return *whole;
}

RoundTimes predict_run_rounds(const RunWorld& world, const std::vector<Duration>& measured_steps) {
  RoundTimes rounds;
  // Its kinds of steps take turns, and are predicted kind by kind: which step is which is lost.
  if (world.config.method == "01-adam") return rounds;
  const Rank observer = world.site != nullptr ? world.site->self() : Rank(0);
  for (const PredictionInput& input : stretches_of(world, measured_steps)) {
    rounds.add(predict_rounds(input, observer));
  }
  return rounds;
}

}  // namespace isthmus::app
