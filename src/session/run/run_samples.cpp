// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "core/base/check.h"
#include "data/documents.h"
#include "data/tokenize/conversation_data.h"
#include "isthmus/errors.h"
#include "session/run/run_settings.h"

namespace isthmus::app {
namespace {

/// The file of a caller's trainer may lack keys that the built-in trainer needs.
Dataset open_for_caller(const Storage& storage, const Config& config) {
  const auto missing = [&](std::string_view key, std::string_view example) {
    throw ConfigError(
        fmt::format("{} has no {}: a trainer that asks the run for samples needs it ({})",
                    config.file.string(), key, example));
  };
  if (config.data.source.empty() && config.data.sources.empty())
    missing("data.source", "source = \"text:FILE\" in [data]");
  if (config.train.global_batch_tokens < 1)
    missing("train.global_batch", "global_batch = \"4096 tok\" in [train]");
  return open_data(storage, config);
}

/// Windows of an evaluation that takes of each source its share and no more than there is: at most
/// `wanted`.
std::int64_t windows_there(const Config& config, const Dataset& data, const DataHistory& history,
                           std::int64_t wanted) {
  std::vector<std::int64_t> there;
  for (std::size_t k = 0; k < data.sources().size(); ++k) {
    there.push_back(validation_windows(DataSplit(data, history, k), config.train.context,
                                       parse_validation_part(config.eval.part)));
    const double of_share = static_cast<double>(there.back()) / data.sources()[k].share;
    wanted = std::min(wanted, static_cast<std::int64_t>(of_share) + 1);
  }
  // Shares are rounded, and each source has a window.
  const auto fits = [&](std::int64_t windows) {
    return std::ranges::equal(windows_of_sources(data, windows), there, std::less_equal());
  };
  while (wanted > 0 && !fits(wanted)) --wanted;
  return wanted;
}

std::int64_t parts_of(const ValidationSource::Source& source) {
  return (source.end - source.begin + kEvaluationWindows - 1) / kEvaluationWindows;
}

std::vector<EvaluationSource> sources_of(const ValidationSource& windows) {
  std::vector<EvaluationSource> sources;
  if (windows.sources().size() == 1) return sources;
  std::int64_t part = 0;
  for (const ValidationSource::Source& source : windows.sources()) {
    sources.push_back({source.split.source().name, part});
    part += parts_of(source);
  }
  return sources;
}

}  // namespace

Vocabulary vocabulary_of(const Config& config) {
  const bool of_folder = std::ranges::any_of(config.origins, [](const auto& origin) {
    return origin.first.starts_with("model.") && origin.second.text == "model.init";
  });
  return {config.model.vocab, of_folder ? config.model.init.string() : ""};
}

BatchPlan batch_plan(const Config& config) {
  return {.context = config.train.context,
          .samples = config.train.global_batch_tokens / config.train.context,
          .workers = config.workers(),
          .order = parse_data_order(config.data.order),
          .partition = parse_data_partition(config.data.partition),
          .seed = config.run.seed,
          .vocab = vocabulary_of(config),
          .documents = parse_data_pack(config.data.pack),
          .one_mean = takes_gradients(config)};
}

ValidationPlan validation_plan(const Config& config, std::int64_t tokens) {
  return {.context = config.train.context,
          .tokens = tokens,
          .vocab = vocabulary_of(config),
          .part = parse_validation_part(config.eval.part),
          .documents = parse_data_pack(config.data.pack)};
}

std::int64_t eval_tokens(const Config& config, const Dataset& data, const DataHistory& history) {
  const std::int64_t context = config.train.context;
  if (by_default(config, "eval.tokens") && !config.eval.all) {
    const std::int64_t wanted = std::max<std::int64_t>(config.eval.tokens / context, 1);
    const std::int64_t windows = windows_there(config, data, history, wanted);
    return windows < 1 ? -1 : std::min(config.eval.tokens, windows * context);
  }
  return config.eval.all ? 0 : config.eval.tokens;
}

std::int64_t evaluation_parts(const ValidationSource& windows) {
  std::int64_t parts = 0;
  for (const ValidationSource::Source& source : windows.sources()) parts += parts_of(source);
  return parts;
}

EvaluationWindows windows_of_part(const ValidationSource& windows, std::int64_t part) {
  for (const ValidationSource::Source& source : windows.sources()) {
    if (part < parts_of(source)) {
      const std::int64_t first = source.begin + part * kEvaluationWindows;
      return {first, std::min(kEvaluationWindows, source.end - first)};
    }
    part -= parts_of(source);
  }
  ISTHMUS_CHECK(false, part, windows.windows());
  return {};
}

std::vector<EvaluationSource> evaluation_sources(const Config& config, const Dataset& data) {
  const std::int64_t tokens = eval_tokens(config, data);
  if (tokens < 0) return {};
  return sources_of(ValidationSource{data, validation_plan(config, tokens)});
}

std::int64_t evaluation_parts(const Config& config, const Dataset& data) {
  const std::int64_t tokens = eval_tokens(config, data);
  if (tokens < 0) return 0;
  return evaluation_parts(ValidationSource{data, validation_plan(config, tokens)});
}

RunSamples::RunSamples(const Storage& storage, const Config& config, WorkerId worker)
    : context_(config.train.context),
      data_(open_for_caller(storage, config)),
      batches_(data_, batch_plan(config), worker.value()) {
  data_.check_vocabulary(vocabulary_of(config));
  if (const std::int64_t tokens = eval_tokens(config, data_); tokens >= 0) {
    validation_.emplace(data_, validation_plan(config, tokens));
  }
}

std::int64_t RunSamples::samples() const {
  return batches_.plan().samples / batches_.plan().workers;
}

std::int64_t RunSamples::parts() const { return validation_ ? evaluation_parts(*validation_) : 0; }

std::int64_t RunSamples::windows(std::int64_t part) const {
  ISTHMUS_CHECK(part >= 0 && part < parts(), part, parts());
  return windows_of_part(*validation_, part).count;
}

std::vector<EvaluationSource> RunSamples::sources() const {
  return validation_ ? sources_of(*validation_) : std::vector<EvaluationSource>();
}

TokenBatch RunSamples::part(std::int64_t part) {
  ISTHMUS_CHECK(part >= 0 && part < parts(), part, parts());
  const EvaluationWindows windows = windows_of_part(*validation_, part);
  return validation_->at(windows.first, windows.count);
}

}  // namespace isthmus::app
