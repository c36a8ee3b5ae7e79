// SPDX-License-Identifier: Apache-2.0
#include "app/train/comparison_retimer.h"

#include <algorithm>
#include <utility>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "inner/loop/model_cost.h"
#include "kernels/thread_team.h"
#include "sim/topology.h"

namespace isthmus::app {
namespace {

std::vector<DirectedLink> links_of(const Config& config) {
  std::vector<std::string> sites;
  for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  return link_matrix(config.links, sites);
}

/// Length of a worker's step; nothing where it is idle.
std::optional<Duration> step_length(double pace, const StepClock& clock, StepIndex t) {
  return takes_step(pace, t) ? std::optional(clock(t)) : std::nullopt;
}

}  // namespace

std::optional<std::string> retiming_obstacle(const Config& config) {
  if (config.train.trainer == "external") {
    return "an external program trained it, and re-timing does not know that model's parameters";
  }
  if (config.links.empty()) {
    return "it has no [[link]]: its clock is not simulated";
  }
  if (!config.faults.empty()) {
    return "it has [[fault]], which re-timing does not know";
  }
  if (has_traces(config)) {
    return "it has a [[link]] with a trace, and re-timing knows steady rates";
  }
  if (config.net.reduction != "direct") {
    return "its net.reduction is not direct, which is all that re-timing knows";
  }
  if (config.net.shares == "links") {
    return "its net.shares is links, and re-timing knows shares that stay as "
           "they are over other links";
  }
  if (!declares_step_time(config)) {
    return "its step time was measured on the machine that ran it: declare sim.step_time";
  }
  return isthmus::retiming_obstacle(config.method, config.outer);
}

Retimer::Retimer(Config config) : config_(std::move(config)) {
  const TrainingPlan plan = make_training_plan(config_, kernels::usable_cores());
  const ModelLayout layout(model_shape(config_.model, config_.train.context));
  byte_scale_ = surrogate_byte_scale(config_, layout);
  const double passes = forward_only(config_) ? 2.0 / 3.0 : 1.0;
  step_flops_ = passes * training_flops_per_token(layout, config_.train.context) *
                static_cast<double>(plan.worker_samples * config_.train.context);
  OuterOptions outer = config_.outer;
  outer.patience = Duration::max();
  outer.spsa.run_key = run_key(config_.run.seed, Stream::kSpsa);
  program_ = record_program({.method = config_.method,
                             .options = outer,
                             .parameters = parameters_without_values(layout),
                             .workers = plan.workers,
                             .steps = plan.total_steps,
                             .chunk_bytes = chunk_bytes(config_)});
}

RetimingInput Retimer::input(const Config& config) const {
  std::vector<StepClock> clocks;
  for (int m = 0; m < program_.workers; ++m) {
    clocks.push_back(make_step_clock(config, WorkerId(m), step_flops_, Duration{0}));
  }
  return {.program = program_,
          .links = links_of(config),
          .link = {.model = config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
                   .byte_scale = byte_scale_},
          .seed = config.run.seed,
          .step_time = [sites = config.sites, clocks](WorkerId worker, StepIndex t) {
            const auto m = static_cast<std::size_t>(worker.value());
            return step_length(sites[m].pace, clocks[m], t);
          }};
}

RetimedRun Retimer::over(const std::vector<LinkConfig>& links, std::int64_t seed) const {
  Config config = config_;
  config.run.seed = static_cast<std::uint64_t>(seed);
  replace_links(config, links, "other links");
  return retime(input(config));
}

bool Retimer::seeds_differ(const std::vector<LinkConfig>& links) const {
  return std::ranges::any_of(config_.sites,
                             [](const SiteConfig& site) { return site.jitter > 0; }) ||
         std::ranges::any_of(links,
                             [](const LinkConfig& link) { return link.jitter > Duration{0}; });
}

Config config_of_run(const std::filesystem::path& folder) {
  return load_config(folder / "config.resolved.toml", {}, schema_context());
}

}  // namespace isthmus::app
