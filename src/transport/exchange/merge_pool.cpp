// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/merge_pool.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/deadline.h"

namespace isthmus {

std::uint32_t mean_encoder(const PickedOffers& picked) {
  for (const auto& [worker, offer] : picked.offers) {
    if (offer.id.sent == picked.step)
      return kMeanWorker - static_cast<std::uint32_t>(index(worker));
  }
  ISTHMUS_CHECK(false, picked.number);
  return kMeanWorker;
}

bool MergePool::take(WorkerId from, Offer offer, TimePoint now) {
  Offers& offers = offers_[offer.id.fragment];
  return offers.emplace(from, Held{.offer = std::move(offer), .came = now}).second;
}

void MergePool::finish(WorkerId worker) { state(worker) = {.trains = false, .finished = true}; }

void MergePool::leave(WorkerId worker) { finish(worker); }

TimePoint MergePool::due(const Offers& offers) const {
  std::size_t awaited = 0;
  for (std::size_t m = 0; m < workers_.size(); ++m) {
    if (workers_[m].trains && !offers.contains(WorkerId(static_cast<int>(m)))) ++awaited;
  }
  std::vector<TimePoint> came;
  Duration grace = Duration::max();
  std::size_t quorum = 1;
  for (const auto& [worker, held] : offers) {
    came.push_back(held.came);
    grace = std::min(grace, *held.offer.rule.grace);
    quorum = static_cast<std::size_t>(held.offer.rule.quorum);
  }
  std::ranges::sort(came);
  if (awaited == 0) return came.back();
  quorum = std::min(quorum, offers.size() + awaited);
  return offers.size() < quorum ? kNever : deadline_after(came[quorum - 1], grace);
}

TimePoint MergePool::due() const {
  TimePoint next = kNever;
  for (const auto& [fragment, offers] : offers_) next = std::min(next, due(offers));
  return next;
}

std::optional<PickedOffers> MergePool::pick(TimePoint now) {
  auto next = offers_.end();
  for (auto each = offers_.begin(); each != offers_.end(); ++each) {
    if (next == offers_.end() || due(each->second) < due(next->second)) next = each;
  }
  if (next == offers_.end() || due(next->second) > now) return std::nullopt;
  PickedOffers picked{.number = ++merges_, .fragment = next->first, .step = {}, .offers = {}};
  for (auto& [worker, held] : next->second) {
    picked.step = std::max(picked.step, held.offer.id.sent);
    picked.offers.emplace_back(worker, std::move(held.offer));
  }
  offers_.erase(next);
  return picked;
}

bool MergePool::ended() const {
  return offers_.empty() &&
         std::ranges::all_of(workers_, [](const Worker& worker) { return worker.finished; });
}

}  // namespace isthmus
