// SPDX-License-Identifier: Apache-2.0
#include "data/batch_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Targets are the inputs that follow: `read` reads window [begin, begin + T), then one token more.
template <typename Read>
void read_window(const Read& read, std::int64_t begin, std::span<std::int32_t> inputs,
                 std::span<std::int32_t> targets) {
  read(begin, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  read(begin + static_cast<std::int64_t>(inputs.size()), targets.last(1));
}

std::span<std::int32_t> row(std::vector<std::int32_t>& values, std::int64_t index,
                            std::int64_t length) {
  return std::span(values).subspan(static_cast<std::size_t>(index * length),
                                   static_cast<std::size_t>(length));
}

}  // namespace

BatchSource::BatchSource(const Dataset& data, BatchPlan plan, int worker, DataHistory history)
    : split_(data, std::move(history)), plan_(plan), worker_(worker) {
  ISTHMUS_CHECK(plan.context >= 1 && plan.samples >= 1, plan.context, plan.samples);
  ISTHMUS_CHECK(worker >= 0 && worker < plan.workers, worker, plan.workers);
  if (plan.samples % plan.workers != 0) {
    throw ConfigError(fmt::format(
        "train.global_batch = {} tok: its {} samples of train.context = {} are no multiple of {} "
        "workers",
        plan.samples * plan.context, plan.samples, plan.context, plan.workers));
  }
  const std::vector<DataEra> eras = split_.eras();
  const std::int64_t n = eras.front().train_tokens;
  if (n < plan.context + 2) {
    throw ConfigError(fmt::format(
        "train.context = {}: needs at least {} training tokens; data.source = \"{}\" has {} ({} "
        "less "
        "{} for validation); use more data or a shorter context",
        plan.context, plan.context + 2, data.source(), n, n + split_.validation_tokens(),
        split_.validation_tokens()));
  }
  const std::int64_t windows = window_count(n, plan.context);
  if (plan.partition == DataPartition::kShards && windows < plan.workers) {
    throw ConfigError(fmt::format(
        "data.partition = \"shards\": {} training tokens hold {} windows of train.context = {}, "
        "fewer than {} workers; use more data, a shorter context or \"iid\"",
        n, windows, plan.context, plan.workers));
  }
  const auto size = static_cast<std::size_t>(plan.samples / plan.workers * plan.context);
  inputs_.resize(size);
  targets_.resize(size);
  order_.emplace(plan_, eras, worker_);
}

TokenBatch BatchSource::at(std::int64_t step) {
  ISTHMUS_CHECK(step >= 0, step);
  const std::int64_t samples = plan_.samples / plan_.workers;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t sample = i * plan_.workers + worker_;
    read_window([&](std::int64_t begin,
                    std::span<std::int32_t> out) { split_.read_training(begin, out, plan_.vocab); },
                order_->begin(step, sample), row(inputs_, i, plan_.context),
                row(targets_, i, plan_.context));
  }
  return {inputs_, targets_, samples, plan_.context};
}

ValidationPart parse_validation_part(std::string_view text) {
  if (text == "whole") return ValidationPart::kWhole;
  if (text == "first") return ValidationPart::kFirst;
  if (text == "second") return ValidationPart::kSecond;
  throw ConfigError(
      fmt::format("eval.part = \"{}\": must be \"whole\", \"first\" or \"second\"", text));
}

std::int64_t validation_windows(const DataSplit& split, std::int64_t context, ValidationPart part) {
  const std::int64_t tokens = split.validation_tokens();
  const std::int64_t all = tokens > 0 ? window_count(tokens, context) : 0;
  return part == ValidationPart::kWhole ? all : all / 2;
}

ValidationSource::ValidationSource(const Dataset& data, std::int64_t context, std::int64_t tokens,
                                   std::int64_t vocab, ValidationPart part, DataHistory history)
    : split_(data, std::move(history)), context_(context), vocab_(vocab) {
  ISTHMUS_CHECK(context >= 1 && tokens >= 0, context, tokens);
  const std::int64_t there = validation_windows(split_, context, part);
  windows_ = tokens == 0 ? there : tokens / context;
  first_ = part == ValidationPart::kSecond ? there : 0;
  if (windows_ == 0 || windows_ > there) {
    throw ConfigError(fmt::format(
        "eval.tokens = {}: {} of data.source = \"{}\" has {} tokens, {} windows of train.context = "
        "{} with their targets; set eval.tokens from {} to {}, or raise data.val_fraction",
        tokens == 0 ? std::string("\"all\"") : std::to_string(tokens),
        part == ValidationPart::kWhole ? "the validation part" : "a half of the validation part",
        data.source(), split_.validation_tokens() / (part == ValidationPart::kWhole ? 1 : 2), there,
        context, context, there * context));
  }
}

TokenBatch ValidationSource::at(std::int64_t first, std::int64_t count) {
  ISTHMUS_CHECK(first >= 0 && count >= 1, first, count);
  ISTHMUS_CHECK(count <= windows_ - first, first, count, windows_);
  const auto size = static_cast<std::size_t>(count * context_);
  inputs_.resize(size);
  targets_.resize(size);
  for (std::int64_t i = 0; i < count; ++i) {
    read_window([&](std::int64_t begin,
                    std::span<std::int32_t> out) { split_.read_validation(begin, out, vocab_); },
                (first_ + first + i) * context_, row(inputs_, i, context_),
                row(targets_, i, context_));
  }
  return {inputs_, targets_, count, context_};
}

}  // namespace isthmus
