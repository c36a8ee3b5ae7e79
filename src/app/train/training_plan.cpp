// SPDX-License-Identifier: Apache-2.0
#include "app/train/training_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_shape.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "outer/parts/settings.h"

namespace isthmus::app {
namespace {

/// The largest divisor of a rank's samples that is at most 2 pp; a pipeline with virtual stages
/// takes multiples of pp where the samples allow it.
std::int64_t default_micro_batches(std::int64_t samples, const Config& config, int pp) {
  const bool interleaved = config.virtual_stages > 1 && samples % pp == 0;
  for (std::int64_t parts = 2 * pp; parts > 1; --parts) {
    if (samples % parts == 0 && (!interleaved || parts % pp == 0)) return parts;
  }
  return 1;
}

SiteMesh site_mesh(const Config& config, const SiteConfig& site, std::int64_t worker_samples) {
  SiteMesh mesh{.shape = {.tp = site.tp,
                          .pp = site.pp,
                          .dp = site.dp,
                          .sequence_parallel = config.sequence_parallel && site.tp > 1}};
  check_mesh(model_shape(config.model, config.train.context), mesh.shape, worker_samples,
             config.train.context);
  const std::int64_t samples = worker_samples / site.dp;
  if (site.pp > 1 && config.virtual_stages > 1 && !config.micro_batches && samples % site.pp != 0) {
    throw ConfigError(fmt::format(
        "parallel.virtual_stages = {}: takes micro-batches in multiples of pp = {}, "
        "and a rank has {} samples a step; make train.global_batch a multiple of {} samples",
        config.virtual_stages, site.pp, samples,
        std::int64_t{site.pp} * site.dp * config.workers()));
  }
  mesh.micro_batches =
      config.micro_batches.value_or(default_micro_batches(samples, config, site.pp));
  if (mesh.micro_batches < 1 || samples % mesh.micro_batches != 0) {
    throw ConfigError(
        fmt::format("parallel.micro_batches = {}: must divide the {} samples of one {}",
                    mesh.micro_batches, samples, site.dp > 1 ? "rank" : "worker"));
  }
  // Refused here rather than when the ranks have started.
  if (site.pp > 1) {
    check_recompute(parse_pipeline_kind(config.pipeline_schedule), config.train.recompute);
    const PipelineSchedule schedule =
        make_pipeline_schedule(parse_pipeline_kind(config.pipeline_schedule), site.pp,
                               static_cast<int>(mesh.micro_batches), config.virtual_stages);
    if (schedule.stages() > config.model.layers) {
      throw ConfigError(
          fmt::format("parallel: pp x virtual_stages = {} x {} stages for model.n_layers = {}: "
                      "each needs a layer",
                      site.pp, config.virtual_stages, config.model.layers));
    }
  }
  check_rank_codecs(config.rank_codecs);
  if (site.tp > 1 && config.train.precision == "bf16" &&
      !make_codec(config.rank_codecs.tensor)->lossless()) {
    throw ConfigError(fmt::format(
        "parallel.codec_tensor = \"{}\": with train.precision = \"bf16\" a layer's sums travel as "
        "bfloat16 already; leave it out",
        config.rank_codecs.tensor));
  }
  return mesh;
}

}  // namespace

TrainingPlan make_training_plan(const Config& config, std::span<const int> cores,
                                std::optional<WorkerId> only) {
  if (config.train.trainer == "external") {
    throw ConfigError(fmt::format(
        "train.trainer = \"external\": the trainer of {} is in another program; start that "
        "program, or leave the key out for the built-in trainer",
        config.file.string()));
  }
  TrainingPlan plan;
  static_cast<RunPlan&>(plan) = make_run_plan(config, only);
  plan.samples = config.train.global_batch_tokens / config.train.context;
  plan.worker_samples = plan.samples / plan.workers;
  for (const SiteConfig& site : config.sites) {
    plan.meshes.push_back(site_mesh(config, site, plan.worker_samples));
  }
  const int threads =
      config.train.threads > 0 ? config.train.threads : static_cast<int>(cores.size());
  const int here = plan.workers_in_process;
  plan.threads_per_worker = std::max(1, threads / here);
  if (config.train.pin) {
    const auto wanted =
        static_cast<std::size_t>(plan.threads_per_worker) * static_cast<std::size_t>(here);
    if (wanted > cores.size()) {
      throw ConfigError(
          fmt::format("train.pin = true: {} workers of {} threads need {} cores, this process may "
                      "use {}; lower "
                      "train.threads or run.workers, or leave train.pin out",
                      here, plan.threads_per_worker, wanted, cores.size()));
    }
    plan.cores.assign(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(wanted));
  }
  return plan;
}

std::vector<int> cores_of(const TrainingPlan& plan, WorkerId rank) {
  if (plan.cores.empty()) {
    return {};
  }
  const auto first =
      plan.cores.begin() +
      static_cast<std::ptrdiff_t>(rank.value() - plan.first_worker) * plan.threads_per_worker;
  return {first, first + plan.threads_per_worker};
}

}  // namespace isthmus::app
