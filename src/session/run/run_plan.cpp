// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_plan.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/base/rng.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "outer/parts/settings.h"
#include "session/run/run_settings.h"

namespace isthmus::app {
namespace {

/// Frames are cut at tiles, so one of each codec that goes between sites must fit.
void check_chunk(const Config& config) {
  const MethodInfo& info = info_of(config.method);
  const auto check = [&](std::string_view key, const std::string& spelling) {
    const std::size_t tile = make_codec(spelling)->encoded_bytes(kTileValues);
    if (tile <= static_cast<std::size_t>(config.net.chunk)) return;
    throw ConfigError(
        fmt::format("net.chunk = {} bytes: a frame holds a tile of {} values at least, and one of "
                    "{} = \"{}\" has {} bytes; make it {} bytes or more",
                    config.net.chunk, kTileValues, key, spelling, tile, tile));
  };
  if (info.takes("codec")) check("outer.codec", outer::codec_of(info, config.outer));
  if (info.takes("warmup_codec")) {
    check("outer.warmup_codec", config.outer.one_bit_adam.warmup_codec);
  }
}

}  // namespace

RunPlan make_run_plan(const Config& config, std::optional<WorkerId> only) {
  check_chunk(config);
  RunPlan plan;
  plan.workers = config.workers();
  plan.total_steps = total_steps(config);
  plan.first_worker = only ? only->value() : 0;
  plan.workers_in_process = only ? 1 : plan.workers;
  plan.eval_every = config.eval.every.resolve(plan.total_steps);
  plan.checkpoint_every = config.ckpt.every_steps;
  return plan;
}

std::vector<WorkerId> RunPlan::workers_here() const {
  std::vector<WorkerId> ranks;
  for (int m = 0; m < workers_in_process; ++m) ranks.emplace_back(first_worker + m);
  return ranks;
}

StepClock make_step_clock(const Config& config, WorkerId rank, double step_flops,
                          Duration measured) {
  const SiteConfig& site = config.sites[static_cast<std::size_t>(rank.value())];
  Duration base = measured;
  if (config.surrogate) {
    base = config.surrogate->step_time;
  } else if (config.sim.step_time > Duration{0}) {
    base = config.sim.step_time;
  } else if (site.compute_flops > 0) {
    base = Duration(static_cast<Duration::rep>(step_flops / site.compute_flops * 1e9));
  }
  return [base, jitter = site.jitter, pace = site.pace, seed = config.run.seed, rank](StepIndex t) {
    if (!takes_step(pace, t)) {
      return Duration{0};
    }
    if (jitter == 0) {
      return base;
    }
    const Rng rng(seed, Stream::kStepTime);
    const double u = 2 * rng.uniform(static_cast<std::uint64_t>(t.value()),
                                     static_cast<std::uint32_t>(rank.value())) -
                     1;
    return Duration(
        static_cast<Duration::rep>(static_cast<double>(base.count()) * (1 + jitter * u)));
  };
}

}  // namespace isthmus::app
