// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "session/run/run_settings.h"

namespace isthmus::app {
namespace {

/// The file of a caller's trainer may lack what the built-in trainer needs.
Dataset open_data(const Storage& storage, const Config& config) {
  const auto missing = [&](std::string_view key, std::string_view example) {
    throw ConfigError(
        fmt::format("{} has no {}: a trainer that asks the run for samples needs it ({})",
                    config.file.string(), key, example));
  };
  if (config.data.source.empty()) missing("data.source", "source = \"text:FILE\" in [data]");
  if (config.train.global_batch_tokens < 1)
    missing("train.global_batch", "global_batch = \"4096 tok\" in [train]");
  return Dataset::open(storage, config.data, config.file.parent_path());
}

}  // namespace

BatchPlan batch_plan(const Config& config) {
  return {.context = config.train.context,
          .samples = config.train.global_batch_tokens / config.train.context,
          .workers = config.workers(),
          .order = parse_data_order(config.data.order),
          .partition = parse_data_partition(config.data.partition),
          .seed = config.run.seed,
          .vocab = config.model.vocab};
}

std::int64_t eval_tokens(const Config& config, const Dataset& data, const DataHistory& history) {
  const std::int64_t context = config.train.context;
  const std::int64_t windows = validation_windows(DataSplit(data, history), context,
                                                  parse_validation_part(config.eval.part));
  if (by_default(config, "eval.tokens") && !config.eval.all) {
    return windows < 1 ? -1 : std::min(config.eval.tokens, windows * context);
  }
  return config.eval.all ? 0 : config.eval.tokens;
}

std::int64_t evaluation_parts(const ValidationSource& windows) {
  return (windows.windows() + kEvaluationWindows - 1) / kEvaluationWindows;
}

std::int64_t evaluation_parts(const Config& config, const Dataset& data) {
  const std::int64_t tokens = eval_tokens(config, data);
  if (tokens < 0) return 0;
  return evaluation_parts(ValidationSource{data, config.train.context, tokens, config.model.vocab,
                                           parse_validation_part(config.eval.part)});
}

RunSamples::RunSamples(const Storage& storage, const Config& config, WorkerId worker)
    : context_(config.train.context),
      data_(open_data(storage, config)),
      batches_(data_, batch_plan(config), worker.value()) {
  data_.check_vocabulary(config.model.vocab);
  if (const std::int64_t tokens = eval_tokens(config, data_); tokens >= 0) {
    validation_.emplace(data_, context_, tokens, config.model.vocab,
                        parse_validation_part(config.eval.part));
  }
}

std::int64_t RunSamples::samples() const {
  return batches_.plan().samples / batches_.plan().workers;
}

std::int64_t RunSamples::parts() const { return validation_ ? evaluation_parts(*validation_) : 0; }

std::int64_t RunSamples::windows(std::int64_t part) const {
  ISTHMUS_CHECK(part >= 0 && part < parts(), part, parts());
  return std::min(kEvaluationWindows, validation_->windows() - part * kEvaluationWindows);
}

TokenBatch RunSamples::part(std::int64_t part) {
  const std::int64_t count = windows(part);
  return validation_->at(part * kEvaluationWindows, count);
}

}  // namespace isthmus::app
