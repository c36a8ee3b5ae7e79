// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "app/train/config_to_options.h"
#include "app/train/device_choice.h"
#include "app/train/offload.h"
#include "core/base/system_runtime.h"
#include "core/state/state_memory.h"
#include "data/batch_source.h"
#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_cost.h"
#include "session/run/owner_shares.h"
#include "sim/topology.h"
#include "transport/links/network_transport.h"

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

/// Connections of a link between processes. "auto" (0) ends with the most where loss binds.
int streams_over(const DirectedLink& link, int configured) {
  if (configured > 0) return configured;
  const bool grows = link.loss > 0 && link.congestion == Congestion::kCubic;
  return grows ? kMostStreams : kFewestStreams;
}

}  // namespace

double step_flops(const Config& config, const TrainingPlan& plan, const ModelLayout& layout) {
  // Two forward passes instead of one and a backward pass, which is two.
  const double passes = forward_only(config) ? 2.0 / 3.0 : 1.0;
  return passes * training_flops_per_token(layout, config.train.context) *
         static_cast<double>(plan.worker_samples * config.train.context);
}

Duration measure_step(const Config& config, const TrainingPlan& plan, const Dataset& data) {
  return declares_step_time(config) ? Duration{0} : time_step(config, plan, data);
}

Duration time_step(const Config& config, const TrainingPlan& plan, const Dataset& data) {
  const auto files = make_state_memory(config, WorkerId(0), nullptr, nullptr);
  const StateMemoryScope scope(files.get());
  BatchSource source(data, batch_plan(config), 0);
  const auto loop =
      make_inner_loop({}, WorkerId(0), language_model_options(config, plan, WorkerId(0)),
                      [&](StepIndex t) { return source.at(t.value() - 1); });
  if (config.model.lora.rank > 0) load_initial_weights(SystemStorage(), config, *loop);
  SystemRuntime runtime;
  Duration best = Duration::max();
  constexpr int kRepetitions = 3;  // the first one also touches the memory
  for (int i = 0; i < kRepetitions; ++i) {
    const TimePoint begin = runtime.clock().now();
    if (forward_only(config)) {
      const OwnParameters own(loop->parameters());
      (void)loop->train_loss(StepIndex(1), {}, own);
      (void)loop->train_loss(StepIndex(1), {}, own);
    } else {
      loop->gradients(StepIndex(1), {});
    }
    best = std::min(best, runtime.clock().now() - begin);
  }
  return best;
}

std::string why_links_were_absent(const Config& config, const Prediction& prediction,
                                  double measured_s) {
  constexpr double kFaster = 1.1;  // the closed form of a run of sites is that good
  if (prediction.predicted_s <= kFaster * measured_s) return "";
  const auto here = [](const SiteConfig& site) {
    return site.address.starts_with("127.") || site.address.starts_with("localhost:") ||
           site.address.starts_with("[::1]");
  };
  // Elsewhere a link may be faster than declared, or the prediction may be too long.
  if (!std::ranges::all_of(config.sites, here)) return "";
  return "the declared links were not there: the run was faster than they allow, for all sites are "
         "on loopback; `simulate` plays them";
}

namespace {

/// Workers that wait for nobody skip steps up to the fastest one, whose clock is the run's.
void follow_the_fastest(std::vector<StepClock>& clocks, std::int64_t steps) {
  const StepClock* fastest = nullptr;
  Duration least = Duration::max();
  for (const StepClock& clock : clocks) {
    Duration whole{0};
    for (std::int64_t t = 1; t <= steps; ++t) whole += clock(StepIndex(t));
    if (whole < least) {
      least = whole;
      fastest = &clock;
    }
  }
  const StepClock chosen = *fastest;
  std::ranges::fill(clocks, chosen);
}

/// The predicted stretches of the run, one after the other.
std::vector<PredictionInput> stretches_of(const ModelRun& run,
                                          const std::vector<Duration>& measured_steps) {
  Config config = run.world.config;
  if (!run.world.simulated &&
      has_real_links(run.world)) {  // nothing declared holds for real computing
    config.sim.step_time = Duration{0};
    for (SiteConfig& site : config.sites) {
      site.compute_flops = 0;
      site.jitter = 0;
    }
  }
  std::vector<StepClock> clocks;
  for (int m = 0; m < run.plan.workers; ++m) {
    const std::size_t own = measured_steps.size() == 1 ? 0 : static_cast<std::size_t>(m);
    clocks.push_back(make_step_clock(config, WorkerId(m), step_flops(config, run.plan, run.layout),
                                     measured_steps.at(own)));
  }
  if (goes_by_arrival(config)) follow_the_fastest(clocks, run.plan.total_steps);
  std::int64_t done = 0;
  std::vector<PredictionInput> stretches =
      prediction_phases(config.method, config.outer, parameters_without_values(run.layout),
                        run.plan.workers, run.plan.total_steps);
  for (PredictionInput& input : stretches) {
    input.step_time = [clocks, done](WorkerId rank, StepIndex t) {
      return clocks[static_cast<std::size_t>(rank.value())](StepIndex(done + t.value()));
    };
    input.links = link_matrix(config.links, site_names(config));
    for (DirectedLink& link : input.links) {
      if (run.world.site != nullptr) link.streams = streams_over(link, config.net.streams);
    }
    input.link = link_options(run.world);
    input.shares = owner_shares(config);
    input.groups = site_groups(config);
    input.chunk_bytes = chunk_bytes(config);
    done += input.steps;
  }
  return stretches;
}

}  // namespace

Prediction predict_run(const ModelRun& run, const std::vector<Duration>& measured_steps) {
  std::optional<Prediction> whole;
  for (const PredictionInput& input : stretches_of(run, measured_steps)) {
    const Prediction next = predict(input);
    whole = whole ? one_after_another(*whole, next) : next;
  }
  for (PredictionTerm& term : whole->terms) {  // shown wherever they are
    if (has_traces(run.world.config) && term.name == "payload on the link") {
      term.formula += "; of rates over time (link.trace) the mean";
    }
  }
  return *whole;
}

RoundTimes predict_run_rounds(const ModelRun& run, const std::vector<Duration>& measured_steps) {
  RoundTimes rounds;
  // Its kinds of steps take turns, and are predicted kind by kind: which step is which is lost.
  if (run.world.config.method == "01-adam") return rounds;
  const WorkerId observer = run.world.site != nullptr ? run.world.site->self() : WorkerId(0);
  for (const PredictionInput& input : stretches_of(run, measured_steps)) {
    rounds.add(predict_rounds(input, observer));
  }
  return rounds;
}

}  // namespace isthmus::app
