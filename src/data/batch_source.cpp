// SPDX-License-Identifier: Apache-2.0
#include "data/batch_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kFeistelRounds = 6;

// Whole windows of the training part that have a target for each of their tokens.
std::int64_t window_count(std::int64_t train_tokens, std::int64_t context) {
  return (train_tokens - 1) / context;
}

// First window of worker m's shard; m = M gives the end of the last.
std::int64_t shard_begin(std::int64_t windows, int workers, std::int64_t worker) {
  return windows / workers * worker + windows % workers * worker / workers;
}

// Reads window [begin, begin + T) of the source and its targets into rows of the batch.
void read_window(const Dataset& data, std::int64_t begin, std::int64_t vocab,
                 std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
  data.read_checked(begin, inputs, vocab);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  data.read_checked(begin + static_cast<std::int64_t>(inputs.size()), targets.last(1), vocab);
}

std::span<std::int32_t> row(std::vector<std::int32_t>& values, std::int64_t index,
                            std::int64_t length) {
  return std::span(values).subspan(static_cast<std::size_t>(index * length),
                                   static_cast<std::size_t>(length));
}

}  // namespace

DataOrder parse_data_order(std::string_view text) {
  if (text == "shuffle") return DataOrder::kShuffle;
  if (text == "sequential") return DataOrder::kSequential;
  throw ConfigError(
      fmt::format("data.order = \"{}\": must be \"shuffle\" or \"sequential\"", text));
}

DataPartition parse_data_partition(std::string_view text) {
  if (text == "iid") return DataPartition::kIid;
  if (text == "shards") return DataPartition::kShards;
  throw ConfigError(fmt::format("data.partition = \"{}\": must be \"iid\" or \"shards\"", text));
}

std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                       std::uint32_t slot, std::uint32_t epoch) {
  ISTHMUS_CHECK(index < size, index, size);
  if (size == 1) return 0;
  const Rng rng{seed, Stream::kShuffle};
  // A Feistel network permutes the next power of four; values outside are sent round again (at most
  // four times as many values as needed, so four rounds of the walk on average at worst).
  const auto half_bits = (std::bit_width(size - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t counter = right | round << 32 | std::uint64_t{slot} << 40;
      const std::uint64_t next = left ^ (rng.words(counter, epoch)[0] & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= size);
  return value;
}

std::int64_t window_begin(const BatchPlan& plan, std::int64_t train_tokens, std::int64_t step,
                          std::int64_t sample) {
  const std::int64_t length = plan.context;
  const std::int64_t windows = window_count(train_tokens, length);
  std::int64_t first = 0;        // window where the worker's data begin
  std::int64_t count = windows;  // windows it may read
  std::int64_t tokens = train_tokens;
  std::int64_t index = step * plan.samples + sample;
  std::uint32_t slot = 0;
  if (plan.partition == DataPartition::kShards) {
    const std::int64_t worker = sample % plan.workers;
    first = shard_begin(windows, plan.workers, worker);
    count = shard_begin(windows, plan.workers, worker + 1) - first;
    tokens = count * length + 1;
    index = step * (plan.samples / plan.workers) + sample / plan.workers;
    slot = static_cast<std::uint32_t>(worker);
  }
  if (plan.order == DataOrder::kSequential) {
    return first * length + index * length % std::max<std::int64_t>(tokens - length - 1, 1);
  }
  const std::int64_t epoch = index / count;
  const std::uint64_t window =
      permuted(static_cast<std::uint64_t>(index % count), static_cast<std::uint64_t>(count),
               plan.seed, slot, static_cast<std::uint32_t>(epoch));
  return (first + static_cast<std::int64_t>(window)) * length;
}

BatchSource::BatchSource(const Dataset& data, BatchPlan plan, int worker)
    : data_(data), plan_(plan), worker_(worker) {
  ISTHMUS_CHECK(plan.context >= 1 && plan.samples >= 1, plan.context, plan.samples);
  ISTHMUS_CHECK(worker >= 0 && worker < plan.workers, worker, plan.workers);
  if (plan.samples % plan.workers != 0) {
    throw ConfigError(fmt::format(
        "train.global_batch = {} tok: its {} samples of train.context = {} are no multiple of {} "
        "workers",
        plan.samples * plan.context, plan.samples, plan.context, plan.workers));
  }
  const std::int64_t n = data.train_tokens();
  if (n < plan.context + 2) {
    throw ConfigError(fmt::format(
        "train.context = {}: needs at least {} training tokens; data.source = \"{}\" has {} ({} "
        "less "
        "{} for validation); use more data or a shorter context",
        plan.context, plan.context + 2, data.source(), n, data.tokens(), data.validation_tokens()));
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
}

TokenBatch BatchSource::at(std::int64_t step) {
  ISTHMUS_CHECK(step >= 0, step);
  const std::int64_t samples = plan_.samples / plan_.workers;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t sample = i * plan_.workers + worker_;
    const std::int64_t begin = window_begin(plan_, data_.train_tokens(), step, sample);
    read_window(data_, begin, plan_.vocab, row(inputs_, i, plan_.context),
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

std::int64_t validation_windows(const Dataset& data, std::int64_t context, ValidationPart part) {
  const std::int64_t tokens = data.validation_tokens();
  const std::int64_t all = tokens > 0 ? window_count(tokens, context) : 0;
  return part == ValidationPart::kWhole ? all : all / 2;
}

ValidationSource::ValidationSource(const Dataset& data, std::int64_t context, std::int64_t tokens,
                                   std::int64_t vocab, ValidationPart part)
    : data_(data), context_(context), vocab_(vocab) {
  ISTHMUS_CHECK(context >= 1 && tokens >= 0, context, tokens);
  const std::int64_t there = validation_windows(data, context, part);
  windows_ = tokens == 0 ? there : tokens / context;
  first_ = part == ValidationPart::kSecond ? there : 0;
  if (windows_ == 0 || windows_ > there) {
    throw ConfigError(fmt::format(
        "eval.tokens = {}: {} of data.source = \"{}\" has {} tokens, {} windows of train.context = "
        "{} with their targets; set eval.tokens from {} to {}, or raise data.val_fraction",
        tokens == 0 ? std::string("\"all\"") : std::to_string(tokens),
        part == ValidationPart::kWhole ? "the validation part" : "a half of the validation part",
        data.source(), data.validation_tokens() / (part == ValidationPart::kWhole ? 1 : 2), there,
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
    read_window(data_, data_.train_tokens() + (first_ + first + i) * context_, vocab_,
                row(inputs_, i, context_), row(targets_, i, context_));
  }
  return {inputs_, targets_, count, context_};
}

}  // namespace isthmus
