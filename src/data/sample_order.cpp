// SPDX-License-Identifier: Apache-2.0
#include "data/sample_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kFeistelRounds = 6;

// First window of worker m's shard; m = M gives the end of the last.
std::int64_t shard_begin(std::int64_t windows, int workers, std::int64_t worker) {
  return windows / workers * worker + windows % workers * worker / workers;
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

std::int64_t window_count(std::int64_t train_tokens, std::int64_t context) {
  return (train_tokens - 1) / context;
}

SampleOrder::SampleOrder(const BatchPlan& plan, std::span<const DataEra> eras, int worker)
    : plan_(plan), worker_(worker) {
  std::int64_t all = 0;  // windows of the eras so far
  for (const DataEra& each : eras) {
    const std::int64_t windows = window_count(each.train_tokens, plan.context);
    Era era{.start = samples_by(each.first_step),
            .train_tokens = each.train_tokens,
            .windows = windows,
            .first_added = all};
    if (shards()) {
      const std::int64_t added = windows - all;
      const std::int64_t begin = shard_begin(added, plan.workers, worker);
      era.first_added = all + begin;
      era.windows = shard_begin(added, plan.workers, worker + 1) - begin;
      if (!eras_.empty()) era.windows += eras_.back().windows;
    }
    all = windows;
    if (!eras_.empty()) {
      const std::size_t before = eras_.size() - 1;
      if (plan.order == DataOrder::kShuffle) {
        era.under_way = place(before, era.start);
      } else {
        era.position = in_sequence(before, era.start);
      }
    }
    eras_.push_back(era);
  }
  ISTHMUS_CHECK(!eras_.empty());
  ISTHMUS_CHECK(eras_.front().windows > 0, eras_.front().windows);
}

std::int64_t SampleOrder::samples_by(std::int64_t step) const {
  return step * (shards() ? plan_.samples / plan_.workers : plan_.samples);
}

SampleOrder::Place SampleOrder::place(std::size_t era, std::int64_t index) const {
  const Era& here = eras_[era];
  std::int64_t k = index - here.start;
  std::int64_t pass = 0;
  if (era > 0) {
    const std::int64_t left = here.under_way.size - here.under_way.k;
    const std::int64_t size = left + here.windows - eras_[era - 1].windows;
    pass = here.under_way.pass + 1;
    if (k < size) return {.pass = pass, .k = k, .size = size, .of_growth = true};
    k -= size;
    ++pass;
  }
  return {.pass = pass + k / here.windows, .k = k % here.windows, .size = here.windows};
}

/// By number among the worker's own windows.
std::int64_t SampleOrder::shuffled(std::size_t era, const Place& place) const {
  const auto slot = static_cast<std::uint32_t>(shards() ? worker_ : 0);
  const auto drawn = static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(place.k), static_cast<std::uint64_t>(place.size),
               plan_.seed, slot, static_cast<std::uint32_t>(place.pass)));
  if (!place.of_growth) return drawn;
  Place left = eras_[era].under_way;
  if (drawn >= left.size - left.k) {
    return eras_[era - 1].windows + drawn - (left.size - left.k);
  }
  left.k += drawn;
  return shuffled(era - 1, left);
}

/// In tokens; with shards, by number among the worker's own windows.
std::int64_t SampleOrder::in_sequence(std::size_t era, std::int64_t index) const {
  const Era& here = eras_[era];
  const std::int64_t unit = shards() ? 1 : plan_.context;
  const std::int64_t end = shards() ? here.windows - 1 : here.train_tokens - plan_.context - 1;
  return (here.position + (index - here.start) * unit) % std::max<std::int64_t>(end, 1);
}

/// Of one of the worker's own windows.
std::int64_t SampleOrder::window_begin(std::int64_t own) const {
  std::size_t era = 0;
  while (own >= eras_[era].windows) ++era;
  const std::int64_t before = era == 0 ? 0 : eras_[era - 1].windows;
  return (eras_[era].first_added + own - before) * plan_.context;
}

std::int64_t SampleOrder::begin(std::int64_t step, std::int64_t sample) const {
  return begin_of(samples_by(step) + (shards() ? sample / plan_.workers : sample));
}

std::int64_t SampleOrder::begin_of(std::int64_t index) const {
  std::size_t era = eras_.size() - 1;
  while (era > 0 && index < eras_[era].start) --era;
  if (plan_.order == DataOrder::kShuffle) return window_begin(shuffled(era, place(era, index)));
  const std::int64_t position = in_sequence(era, index);
  return shards() ? window_begin(position) : position;
}

std::int64_t window_begin(const BatchPlan& plan, std::int64_t train_tokens, std::int64_t step,
                          std::int64_t sample) {
  const DataEra only{.first_step = 0, .train_tokens = train_tokens};
  const auto worker = static_cast<int>(sample % plan.workers);
  return SampleOrder(plan, std::span(&only, 1), worker).begin(step, sample);
}

}  // namespace isthmus
