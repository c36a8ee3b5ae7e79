// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane_service.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "outer/place/lane_memory.h"
#include "outer/place/lane_state.h"

namespace isthmus::outer {
namespace {

constexpr std::size_t kWords = 10;
using Words = std::array<std::int64_t, kWords>;

Words words_of(const LaneRequest& request, const LaneData& first) {
  return {static_cast<std::int64_t>(request.ask),
          request.fragment.value(),
          std::bit_cast<std::int32_t>(request.alpha),
          std::bit_cast<std::int64_t>(request.key.seed),
          request.key.worker,
          std::bit_cast<std::int64_t>(request.key.tile),
          request.number,
          std::bit_cast<std::int32_t>(request.eta),
          std::bit_cast<std::int32_t>(request.mu),
          static_cast<std::int64_t>(first.local.size())};
}

LaneRequest request_of(const Words& words) {
  return {.ask = static_cast<LaneAsk>(words[0]),
          .fragment = FragmentId(static_cast<int>(words[1])),
          .alpha = std::bit_cast<float>(static_cast<std::int32_t>(words[2])),
          .key = {.seed = std::bit_cast<std::uint64_t>(words[3]),
                  .worker = static_cast<std::uint32_t>(words[4]),
                  .tile = std::bit_cast<std::uint64_t>(words[5])},
          .number = words[6],
          .eta = std::bit_cast<float>(static_cast<std::int32_t>(words[7])),
          .mu = std::bit_cast<float>(static_cast<std::int32_t>(words[8]))};
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

Lanes::Lanes(FragmentedSettings settings)
    : settings_(std::move(settings)), lanes_(settings_.fragments.size()) {}

Lane& Lanes::lane(FragmentId fragment) const {
  const std::unique_ptr<Lane>& lane = lanes_.at(static_cast<std::size_t>(fragment.value()));
  ISTHMUS_CHECK(lane != nullptr, fragment.value());
  return *lane;
}

void Lanes::take_part(const LaneRequest& request, Communicator& ranks, LaneData& first) {
  Words words = words_of(request, first);
  ranks.broadcast({words.data(), static_cast<std::int64_t>(words.size()), Dtype::kI64},
                  LaneExchange::kFirst);
  const LaneRequest asked = request_of(words);
  const auto fragment = static_cast<std::size_t>(asked.fragment.value());
  LaneExchange exchange(static_cast<std::size_t>(settings_.fragments.at(fragment).elements), ranks);
  tell_stretches(static_cast<std::size_t>(words.back()), exchange, first);
  run(asked, exchange, first);
}

// Its inner loop's tensors, of which the others know nothing.
void Lanes::tell_stretches(std::size_t count, LaneExchange& exchange, const LaneData& first) {
  std::vector<std::int64_t> sizes(count);
  for (std::size_t i = 0; i < first.local.size(); ++i) {
    sizes[i] = static_cast<std::int64_t>(first.local[i].size());
  }
  if (count > 0) {
    exchange.ranks().broadcast({sizes.data(), static_cast<std::int64_t>(count), Dtype::kI64},
                               LaneExchange::kFirst);
  }
  stretches_.clear();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = begin + static_cast<std::size_t>(sizes[i]);
    stretches_.push_back({{begin, end}, exchange.first() ? first.local[i].data() : nullptr});
    begin = end;
  }
  // Else values of scratch would become weights.
  ISTHMUS_CHECK(count == 0 || begin == exchange.lanes().back().end, begin);
}

void Lanes::fetch(LaneExchange& exchange, std::span<float> local) {
  for (const Stretch& stretch : stretches_) {
    exchange.scatter(stretch.window, stretch.values, local);
  }
}

void Lanes::give(LaneExchange& exchange, std::span<const float> local) {
  for (const Stretch& stretch : stretches_) {
    exchange.gather(stretch.window, local, stretch.values);
  }
}

void Lanes::serve(Communicator& ranks) {
  LaneData nothing;
  take_part({}, ranks, nothing);
}

void Lanes::use_rates(const LaneRequest& request, Lane& lane) const {
  kernels::OuterStep now = settings_.optimizer;
  now.eta = request.eta;
  now.mu = request.mu;
  lane.state().use_rates(now);
}

void Lanes::run(const LaneRequest& request, LaneExchange& exchange, LaneData& first) {
  const OwnPages scratch(stretches_.empty() ? 0 : exchange.lane().size());
  const std::span<float> local = scratch.span();
  if (request.ask == LaneAsk::kMake) {
    make(settings_.fragments[static_cast<std::size_t>(request.fragment.value())], exchange, local);
    return;
  }
  Lane& lane = this->lane(request.fragment);
  if (!stretches_.empty()) lane.put_local(local);
  switch (request.ask) {
    case LaneAsk::kMake:
      break;
    case LaneAsk::kGradient:
      fetch(exchange, local);
      encode(lane, request.key, exchange, first);
      break;
    case LaneAsk::kTakeBack:
      take_back(lane, exchange, first.sent);
      break;
    case LaneAsk::kKeepResidual:
      lane.state().keep_residual();
      break;
    case LaneAsk::kForgetKeptResidual:
      lane.state().forget_kept_residual();
      break;
    case LaneAsk::kRecallResidual: {
      const bool recalled = lane.state().recall_residual();
      if (first.recalled != nullptr) *first.recalled = recalled;
      break;
    }
    case LaneAsk::kForgetOwnWork:
      lane.state().forget_own_work();
      give(exchange, local);
      break;
    case LaneAsk::kStep:
      use_rates(request, lane);
      lane.state().step(mean_of(exchange, first.mean).span());
      break;
    case LaneAsk::kMerge:
      if (request.alpha != 0) fetch(exchange, local);
      lane.state().merge(request.alpha);
      give(exchange, local);
      break;
    case LaneAsk::kStepAndRebase:
      fetch(exchange, local);
      use_rates(request, lane);
      lane.state().step_and_rebase(mean_of(exchange, first.mean).span());
      give(exchange, local);
      break;
    case LaneAsk::kAnchor:
      exchange.gather({0, lane.whole()}, std::as_const(lane).state().anchor(), first.whole.data());
      break;
    case LaneAsk::kGatherTensor:
      gather_tensor(lane, request.number, exchange, first.whole);
      break;
    case LaneAsk::kBeginLoad:  // where the last one failed at the first rank, something is left
      told_numbers_.clear();
      told_tensors_.clear();
      break;
    case LaneAsk::kTellNumber:
      if (!exchange.first()) told_numbers_.push_back(request.number);
      break;
    case LaneAsk::kTellTensor:
      take_tensor(exchange, first);
      break;
    case LaneAsk::kEndLoad:
      if (!exchange.first()) load_told(lane);
      break;
  }
}

void Lanes::make(const Fragment& fragment, LaneExchange& exchange, std::span<float> local) {
  fetch(exchange, local);
  lanes_.at(static_cast<std::size_t>(fragment.id.value())) =
      std::make_unique<Lane>(settings_, fragment, exchange.lane(), local);
}

void Lanes::gather_tensor(const Lane& lane, std::int64_t number, LaneExchange& exchange,
                          std::span<float> whole) {
  std::int64_t next = 0;
  LaneWriter writer({.tensor =
                         [&](std::string_view, std::span<const float> own) {
                           if (next++ != number) return;
                           exchange.gather({0, lane.whole()}, own, whole.data());
                         },
                     .integer = [](std::string_view, std::int64_t) {}});
  lane.state().save(writer);
  ISTHMUS_CHECK(next > number, next, number);
}

void Lanes::take_tensor(LaneExchange& exchange, const LaneData& first) {
  std::span<float> own = first.part;
  if (!exchange.first()) {
    told_tensors_.push_back(StateArray::unfilled(exchange.lane().size()));
    own = told_tensors_.back().span();
  }
  exchange.scatter({0, exchange.lanes().back().end}, first.whole.data(), own);
}

// The same calls as those of the first rank's lane, so the same answers in the same order.
void Lanes::load_told(Lane& lane) {
  std::size_t number = 0, tensor = 0;
  LaneReader reader({.contains = [&](std::string_view) { return told_numbers_.at(number++) != 0; },
                     .tensor =
                         [&](std::string_view, std::span<float> own) {
                           std::ranges::copy(told_tensors_.at(tensor).span(), own.begin());
                           told_tensors_.at(tensor++) = {};
                         },
                     .integer = [&](std::string_view) { return told_numbers_.at(number++); }});
  lane.state().load(reader);
  ISTHMUS_CHECK(number == told_numbers_.size(), number, told_numbers_.size());
  ISTHMUS_CHECK(tensor == told_tensors_.size(), tensor, told_tensors_.size());
}

void Lanes::encode(Lane& lane, const EncodeKey& key, LaneExchange& exchange,
                   const LaneData& first) {
  const Codec& codec = *settings_.codec;
  const bool whole = exchange.first();
  std::vector<std::int64_t> tiles, bytes, sums;
  for (const LaneRange& each : exchange.lanes()) {
    tiles.push_back(static_cast<std::int64_t>(tiles_of(each.size())));
    bytes.push_back(static_cast<std::int64_t>(encoded_bytes(codec, each.size())));
    sums.push_back(2 * static_cast<std::int64_t>(looked_at(lane.whole(), each)));
  }
  // Added tile by tile as in one fragment, so the norm has its bits.
  double norm = 0;
  const FragmentState::Judge judge = [&](std::span<const double> own) {
    std::vector<double> squares(static_cast<std::size_t>(whole ? sum_of(tiles) : 0));
    exchange.gather(tiles, {own.data(), static_cast<std::int64_t>(own.size()), Dtype::kF64},
                    {squares.data(), static_cast<std::int64_t>(squares.size()), Dtype::kF64});
    norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    std::int64_t fit = whole && (*first.accepts)(norm) ? 1 : 0;
    exchange.ranks().broadcast({&fit, 1, Dtype::kI64}, LaneExchange::kFirst);
    return fit != 0;
  };
  EncodeKey own_key = key;
  own_key.tile += lane.range().first_tile();
  const OuterGradient own = lane.state().encode_part(
      codec, own_key, judge, ContributionSample(lane.whole(), lane.range().first_tile()));
  std::vector<std::byte> codes(static_cast<std::size_t>(whole ? sum_of(bytes) : 0));
  exchange.gather(
      bytes,
      {own.encoded.bytes.data(), static_cast<std::int64_t>(own.encoded.bytes.size()), Dtype::kU8},
      {codes.data(), static_cast<std::int64_t>(codes.size()), Dtype::kU8});
  const std::span<const double> own_sums = own.sample.sums();
  std::vector<double> all_sums(static_cast<std::size_t>(whole ? sum_of(sums) : 0));
  exchange.gather(sums, {own_sums.data(), static_cast<std::int64_t>(own_sums.size()), Dtype::kF64},
                  {all_sums.data(), static_cast<std::int64_t>(all_sums.size()), Dtype::kF64});
  if (!whole) return;
  Encoded encoded{.values = lane.whole(), .bytes = std::move(codes)};
  ContributionSample sample = ContributionSample::of(codec, encoded, std::move(all_sums));
  *first.gradient = {
      .encoded = std::move(encoded), .norm = norm, .fit = own.fit, .sample = std::move(sample)};
}

void Lanes::take_back(Lane& lane, LaneExchange& exchange, std::span<const std::byte> sent) {
  std::vector<std::int64_t> counts;
  for (const LaneRange& each : exchange.lanes()) {
    counts.push_back(static_cast<std::int64_t>(encoded_bytes(*settings_.codec, each.size())));
  }
  if (exchange.first()) {
    ISTHMUS_CHECK(static_cast<std::int64_t>(sent.size()) == sum_of(counts), sent.size());
  }
  const LaneRange range = lane.range();
  Encoded own{.values = range.size(),
              .bytes = std::vector<std::byte>(encoded_bytes(*settings_.codec, range.size()))};
  exchange.scatter(counts, {sent.data(), static_cast<std::int64_t>(sent.size()), Dtype::kU8},
                   {own.bytes.data(), static_cast<std::int64_t>(own.bytes.size()), Dtype::kU8});
  lane.state().take_back(*settings_.codec, own);
}

OwnPages Lanes::mean_of(LaneExchange& exchange, std::span<const float> mean) {
  const std::size_t n =
      std::accumulate(exchange.lanes().begin(), exchange.lanes().end(), std::size_t{0},
                      [](std::size_t sum, const LaneRange& lane) { return sum + lane.size(); });
  if (exchange.first()) ISTHMUS_CHECK(mean.size() == n, mean.size(), n);
  OwnPages own(exchange.lane().size());
  exchange.scatter({0, n}, mean.data(), own.span());
  return own;
}

}  // namespace isthmus::outer
