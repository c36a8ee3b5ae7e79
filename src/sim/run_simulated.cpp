// SPDX-License-Identifier: Apache-2.0
#include "sim/run_simulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "isthmus/errors.h"
#include "sim/rank_runtime.h"
#include "transport/wire/frame.h"

namespace isthmus {
namespace {

/// How long a worker that has finished serves the others, on the virtual clock.
constexpr Duration kLeavePatience = std::chrono::hours(24);

FrameLabel label_of_exchange_frame(const FrameBytes& frame) {
  const auto parsed = parse_frame(*frame);
  if (!parsed) return {};
  return {parsed->header.id.fragment.value(), parsed->header.id.sent.value()};
}

double slowdown_of(const FaultPlan& faults, WorkerId rank) {
  double factor = 1;
  for (const FaultPlan::Slowdown& slowdown : faults.slowdowns) {
    if (slowdown.rank == rank) factor *= slowdown.factor;
  }
  return factor;
}

/// State of one run; its world runs one thread at a time, so nothing is locked.
class Simulation {
 public:
  Simulation(const SimulationOptions& options, const std::function<void(WorkerContext&)>& body)
      : options_(options), body_(body), world_(options.seed, options.world) {}

  SimulationResult run() {
    NetworkOptions network_options = options_.network;
    if (!network_options.label) network_options.label = label_of_exchange_frame;
    const auto workers = static_cast<std::size_t>(options_.workers);
    SimNetwork network(
        world_, options_.workers,
        options_.links.empty() ? std::vector<DirectedLink>(workers * workers) : options_.links,
        std::move(network_options));
    transports_ = network.endpoints();
    world_.run([this] { run_workers(); });
    if (failure_) std::rethrow_exception(failure_);
    result_.trace_hash = world_.trace_hash();
    result_.switches = world_.switches();
    result_.traffic = network.traffic();
    result_.faults = network.fault_counts();
    return std::move(result_);
  }

 private:
  void run_workers() {
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(static_cast<std::size_t>(options_.workers));
    for (int rank = 0; rank < options_.workers; ++rank) {
      tasks.push_back(world_.spawn_in_group(rank, fmt::format("worker {}", rank),
                                            [this, rank] { work(WorkerId(rank)); }));
    }
    for (const std::unique_ptr<Task>& task : tasks) task->join();
  }

  void work(WorkerId rank) {
    RankRuntime runtime(world_, slowdown_of(options_.network.faults, rank));
    PeerExchangeOptions exchange_options = options_.exchange;
    if (exchange_options.events == nullptr) exchange_options.events = options_.network.events;
    Transport& transport = *transports_[static_cast<std::size_t>(rank.value())];
    try {
      std::unique_ptr<Exchange> other;
      if (options_.make_exchange) other = options_.make_exchange(transport, runtime);
      std::optional<PeerExchange> own;
      if (other == nullptr) own.emplace(transport, runtime, std::move(exchange_options));
      WorkerContext context{rank, options_.workers, own ? *own : *other, runtime};
      try {
        body_(context);
        result_.duration = std::max(result_.duration, world_.clock().now().time_since_epoch());
        if (own) own->leave(kLeavePatience);
      } catch (const RankCrashed&) {
        throw;
      } catch (...) {
        // Before the exchange closes, and the others fail for want of this worker.
        if (!failure_) failure_ = std::current_exception();
      }
    } catch (const RankCrashed&) {
      result_.crashed.push_back(rank);
    }
  }

  const SimulationOptions& options_;
  const std::function<void(WorkerContext&)>& body_;
  SimWorld world_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::exception_ptr failure_;  // the first in virtual time
  SimulationResult result_;
};

}  // namespace

SimulationResult run_simulated(const SimulationOptions& options,
                               const std::function<void(WorkerContext&)>& body) {
  if (options.workers < 1) {
    throw ConfigError(fmt::format("workers = {}: must be >= 1", options.workers));
  }
  const auto workers = static_cast<std::size_t>(options.workers);
  if (!options.links.empty() && options.links.size() != workers * workers) {
    throw ConfigError(
        fmt::format("{} links for {} workers: give workers x workers of them, or none",
                    options.links.size(), options.workers));
  }
  return Simulation(options, body).run();
}

}  // namespace isthmus
