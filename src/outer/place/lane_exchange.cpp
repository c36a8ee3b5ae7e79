// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane_exchange.h"

#include "transport/collectives/communicator_call.h"

namespace isthmus::outer {

LaneExchange::LaneExchange(std::size_t n, Communicator& ranks) : ranks_(ranks) {
  for (int r = 0; r < ranks.size(); ++r) lanes_.push_back(lane_of(n, ranks.size(), r));
}

std::vector<std::int64_t> LaneExchange::counts_in(LaneRange window) const {
  std::vector<std::int64_t> counts;
  for (const LaneRange& lane : lanes_) {
    counts.push_back(static_cast<std::int64_t>(common(lane, window).size()));
  }
  return counts;
}

void LaneExchange::scatter(LaneRange window, const float* whole, std::span<float> own) {
  const std::vector<std::int64_t> counts = counts_in(window);
  const LaneRange here = common(lane(), window);
  const std::int64_t all = first() ? static_cast<std::int64_t>(window.size()) : 0;
  scatter(counts, {whole, all, Dtype::kF32},
          {here.size() == 0 ? nullptr : own.data() + (here.begin - lane().begin), own_of(counts),
           Dtype::kF32});
}

void LaneExchange::gather(LaneRange window, std::span<const float> own, float* whole) {
  const std::vector<std::int64_t> counts = counts_in(window);
  const LaneRange here = common(lane(), window);
  const std::int64_t all = first() ? static_cast<std::int64_t>(window.size()) : 0;
  gather(counts,
         {here.size() == 0 ? nullptr : own.data() + (here.begin - lane().begin), own_of(counts),
          Dtype::kF32},
         {whole, all, Dtype::kF32});
}

// As an all-to-all instead of messages: messages that wait for a receiver are copied.
void LaneExchange::scatter(std::span<const std::int64_t> counts, ConstValues whole, Values own) {
  const std::vector<std::int64_t> none(counts.size());
  std::vector<std::int64_t> received = none;
  received[kFirst] = own.count;
  ranks_.all_to_all(whole, first() ? counts : none, own, received, total(counts));
}

void LaneExchange::gather(std::span<const std::int64_t> counts, ConstValues own, Values whole) {
  const std::vector<std::int64_t> none(counts.size());
  std::vector<std::int64_t> sent = none;
  sent[kFirst] = own.count;
  ranks_.all_to_all(own, sent, whole, first() ? counts : none, total(counts));
}

}  // namespace isthmus::outer
