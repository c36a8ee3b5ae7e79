// SPDX-License-Identifier: Apache-2.0
#include "data/batch_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "data/documents.h"
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

/// Seed of the order of a source, by its name alone: another source beside it does not change it.
std::uint64_t seed_of(std::uint64_t seed, const std::string& source) {
  if (source.empty()) return seed;
  std::uint64_t word = 0;
  const Digest128 digest = xxh3_128(as_bytes(source));
  for (const std::uint8_t byte : std::span(digest.bytes).first(8)) {
    word = word << 8 | byte;
  }
  return seed ^ word;
}

/// In messages.
std::string in_words(const Dataset::Source& source) {
  return source.name.empty() ? fmt::format("data.source = \"{}\"", source.text)
                             : fmt::format("data.sources.{} = \"{}\"", source.name, source.text);
}

constexpr std::uint32_t kSlotOfMix = 0xFFFFFF;  // no worker's

}  // namespace

BatchSource::BatchSource(const Dataset& data, BatchPlan plan, int worker, DataHistory history)
    : plan_(plan), worker_(worker) {
  ISTHMUS_CHECK(plan.context >= 1 && plan.samples >= 1, plan.context, plan.samples);
  ISTHMUS_CHECK(worker >= 0 && worker < plan.workers, worker, plan.workers);
  if (plan.samples % plan.workers != 0) {
    throw ConfigError(fmt::format(
        "train.global_batch = {} tok: its {} samples of train.context = {} are no multiple of {} "
        "workers",
        plan.samples * plan.context, plan.samples, plan.context, plan.workers));
  }
  if (plan.documents) data.check_documents();
  for (std::size_t k = 0; k < data.sources().size(); ++k) splits_.emplace_back(data, history, k);
  for (const DataSplit& split : splits_) check_sizes(split);
  const auto size = static_cast<std::size_t>(plan.samples / plan.workers * plan.context);
  inputs_.resize(size);
  targets_.resize(size);
  if (plan.documents) {
    starts_.resize(size);
    other_.resize(static_cast<std::size_t>(plan.context));
    marks_.resize(static_cast<std::size_t>(plan.context));
  }
  // The windows of all workers are asked for where their targets are counted.
  const bool all = plan.documents && plan.one_mean && plan.partition == DataPartition::kShards;
  for (int m = all ? 0 : worker; m < (all ? plan.workers : worker + 1); ++m) {
    orders_.push_back(orders_of(m));
  }
}

void BatchSource::check_sizes(const DataSplit& split) const {
  const std::int64_t n = split.eras().front().train_tokens;
  const std::string source = in_words(split.source());
  if (n < plan_.context + (split.source().packed ? 1 : 2)) {
    throw ConfigError(fmt::format(
        "train.context = {}: needs at least {} training tokens; {} has {} ({} less {} for "
        "validation); use more data or a shorter context",
        plan_.context, plan_.context + 2, source, n, n + split.validation_tokens(),
        split.validation_tokens()));
  }
  const std::int64_t windows = window_count(n, plan_.context);
  if (plan_.partition == DataPartition::kShards && windows < plan_.workers) {
    throw ConfigError(fmt::format(
        "data.partition = \"shards\": {} training tokens{} hold {} windows of train.context = {}, "
        "fewer than {} workers; use more data, a shorter context or \"iid\"",
        n, splits_.size() == 1 ? "" : " of " + source, windows, plan_.context, plan_.workers));
  }
}

BatchSource::Orders BatchSource::orders_of(int worker) const {
  Orders orders;
  std::vector<double> shares;
  for (const DataSplit& split : splits_) {
    BatchPlan own = plan_;
    own.seed = seed_of(plan_.seed, split.source().name);
    orders.sources.emplace_back(own, split.eras(), worker);
    shares.push_back(split.source().share);
  }
  if (splits_.size() > 1) {
    const bool shards = plan_.partition == DataPartition::kShards;
    orders.mix.emplace(shares, plan_.seed, shards ? worker : 0, shards ? plan_.workers : 1);
  }
  return orders;
}

const BatchSource::Orders& BatchSource::orders_for(std::int64_t sample) const {
  return orders_.size() == 1 ? orders_.front()
                             : orders_[static_cast<std::size_t>(sample % plan_.workers)];
}

BatchSource::Window BatchSource::window(std::int64_t step, std::int64_t sample) const {
  const Orders& orders = orders_for(sample);
  if (!orders.mix) return {0, orders.sources.front().begin(step, sample)};
  std::int64_t g = 0;
  if (plan_.partition == DataPartition::kShards) {
    g = step * (plan_.samples / plan_.workers) + sample / plan_.workers;
  } else {
    g = step * plan_.samples +
        static_cast<std::int64_t>(permuted(static_cast<std::uint64_t>(sample),
                                           static_cast<std::uint64_t>(plan_.samples), plan_.seed,
                                           kSlotOfMix, static_cast<std::uint32_t>(step)));
  }
  const SourceMix::Place place = orders.mix->at(g);
  return {place.source, orders.sources[place.source].begin_of(place.index)};
}

void BatchSource::read(const Window& window, std::int64_t more, std::span<std::int32_t> out) const {
  splits_[window.source].read_training(window.begin + more, out, plan_.vocab);
}

std::int64_t BatchSource::targets_of_others(std::int64_t step) {
  std::int64_t targets = 0;
  for (std::int64_t sample = 0; sample < plan_.samples; ++sample) {
    if (sample % plan_.workers == worker_) continue;
    const Window at = window(step, sample);
    if (splits_[at.source].source().packed) {
      splits_[at.source].read_training_marks(at.begin, marks_);
      targets += learnt_targets(marks_);
      continue;
    }
    read(at, 0, other_);
    targets += targets_inside_documents(*splits_[at.source].source().document_end, other_);
  }
  return targets;
}

TokenBatch BatchSource::at(std::int64_t step) {
  ISTHMUS_CHECK(step >= 0, step);
  const std::int64_t samples = plan_.samples / plan_.workers;
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Window at = window(step, i * plan_.workers + worker_);
    const std::span<std::int32_t> inputs = row(inputs_, i, plan_.context);
    read_window([&](std::int64_t more, std::span<std::int32_t> out) { read(at, more, out); }, 0,
                inputs, row(targets_, i, plan_.context));
    if (splits_[at.source].source().packed) {
      splits_[at.source].read_training_marks(at.begin, marks_);
      targets += mark_conversations(marks_, row(targets_, i, plan_.context),
                                    row(starts_, i, plan_.context));
    } else if (plan_.documents) {
      targets += mark_documents(*splits_[at.source].source().document_end, inputs,
                                row(targets_, i, plan_.context), row(starts_, i, plan_.context));
    }
  }
  TokenBatch batch{inputs_, targets_, samples, plan_.context, starts_};
  if (!plan_.documents) return batch;
  if (plan_.one_mean && plan_.workers > 1) {
    targets += targets_of_others(step);
    batch.mean_targets = static_cast<double>(targets) / plan_.workers;
  }
  if (targets == 0) {
    throw ConfigError(
        fmt::format("data.pack = \"documents\": all documents of step {} are of one token, which "
                    "have nothing to "
                    "predict; set data.eos to the id that ends a document, or use a larger "
                    "train.global_batch",
                    step + 1));
  }
  return batch;
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

std::vector<std::int64_t> windows_of_sources(const Dataset& data, std::int64_t windows) {
  if (data.sources().size() == 1) return {windows};
  // The largest remainders get the windows that are left over: each source has its share to less
  // than a window.
  std::vector<std::int64_t> counts;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t left = windows;
  for (const Dataset::Source& source : data.sources()) {
    const double wanted = source.share * static_cast<double>(windows);
    counts.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(wanted)), 1));
    left -= counts.back();
    remainders.emplace_back(static_cast<double>(counts.back()) - wanted, counts.size() - 1);
  }
  std::ranges::sort(remainders);
  for (std::size_t i = 0; left > 0; ++i, --left) ++counts[remainders[i].second];
  return counts;
}

ValidationSource::ValidationSource(const Dataset& data, const ValidationPlan& plan,
                                   DataHistory history)
    : plan_(plan) {
  ISTHMUS_CHECK(plan.context >= 1 && plan.tokens >= 0, plan.context, plan.tokens);
  if (plan.documents) data.check_documents();
  const std::vector<std::int64_t> wanted = windows_of_sources(data, plan.tokens / plan.context);
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < data.sources().size(); ++k) {
    DataSplit split(data, history, k);
    const std::int64_t there = validation_windows(split, plan.context, plan.part);
    const std::int64_t windows = plan.tokens == 0 ? there : wanted[k];
    if (windows == 0 || windows > there) {
      const Dataset::Source& source = data.sources()[k];
      const bool one = data.sources().size() == 1;
      throw ConfigError(fmt::format(
          "eval.tokens = {}: {} of {} has {} tokens, {} windows of train.context = {} with their "
          "targets{}; {}or raise data.val_fraction",
          plan.tokens == 0 ? std::string("\"all\"") : std::to_string(plan.tokens),
          plan.part == ValidationPart::kWhole ? "the validation part"
                                              : "a half of the validation part",
          in_words(source),
          split.validation_tokens() / (plan.part == ValidationPart::kWhole ? 1 : 2), there,
          plan.context, one ? "" : fmt::format(", and its share is {}", windows),
          one ? fmt::format("set eval.tokens from {} to {}, ", plan.context, there * plan.context)
              : "lower eval.tokens, "));
    }
    const std::int64_t first = plan.part == ValidationPart::kSecond ? there : 0;
    sources_.push_back({std::move(split), first, begin, begin + windows});
    begin += windows;
  }
}

TokenBatch ValidationSource::at(std::int64_t first, std::int64_t count) {
  ISTHMUS_CHECK(first >= 0 && count >= 1, first, count);
  ISTHMUS_CHECK(count <= windows() - first, first, count, windows());
  const std::int64_t context = plan_.context;
  const auto size = static_cast<std::size_t>(count * context);
  inputs_.resize(size);
  targets_.resize(size);
  if (plan_.documents) {
    starts_.resize(size);
    marks_.resize(static_cast<std::size_t>(context));
  }
  auto source = sources_.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    while (first + i >= source->end) ++source;
    const std::int64_t window = source->first + first + i - source->begin;
    read_window(
        [&](std::int64_t begin, std::span<std::int32_t> out) {
          source->split.read_validation(begin, out, plan_.vocab);
        },
        window * context, row(inputs_, i, context), row(targets_, i, context));
    if (source->split.source().packed) {
      source->split.read_validation_marks(window * context, marks_);
      mark_conversations(marks_, row(targets_, i, context), row(starts_, i, context));
    } else if (plan_.documents) {
      mark_documents(*source->split.source().document_end, row(inputs_, i, context),
                     row(targets_, i, context), row(starts_, i, context));
    }
  }
  return {inputs_, targets_, count, context, starts_};
}

}  // namespace isthmus
