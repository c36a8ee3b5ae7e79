// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/merges/merge_pool.h"

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
  const FragmentId fragment = offer.id.fragment;
  const bool taken = offers_[fragment]
                         .by_worker.emplace(from, Held{.offer = std::move(offer), .came = now})
                         .second;
  if (state(from) == State::kBack) state(from) = State::kTrains;
  return taken;
}

std::optional<StepIndex> MergePool::held(WorkerId from, FragmentId fragment) const {
  const auto offers = offers_.find(fragment);
  if (offers == offers_.end()) return std::nullopt;
  const auto held = offers->second.by_worker.find(from);
  if (held == offers->second.by_worker.end()) return std::nullopt;
  return held->second.offer.id.sent;
}

bool MergePool::is_closed(FragmentId fragment) const {
  const auto offers = offers_.find(fragment);
  return offers != offers_.end() && offers->second.closed;
}

void MergePool::close_offers_of_former(WorkerId worker) {
  if (state(worker) != State::kGone && state(worker) != State::kBack) return;
  for (auto& [fragment, offers] : offers_) {
    offers.closed = offers.closed || offers.by_worker.contains(worker);
  }
}

void MergePool::come_back(WorkerId worker) {
  if (state(worker) == State::kGone) state(worker) = State::kBack;
}

TimePoint MergePool::due(const Offers& offers) const {
  std::size_t awaited = 0;
  for (std::size_t m = 0; m < workers_.size(); ++m) {
    const bool here = offers.by_worker.contains(WorkerId(static_cast<int>(m)));
    if (workers_[m] == State::kTrains && !here) ++awaited;
  }
  std::vector<TimePoint> came;
  Duration grace = Duration::max();
  std::size_t quorum = 1;
  for (const auto& [worker, held] : offers.by_worker) {
    came.push_back(held.came);
    grace = std::min(grace, *held.offer.rule.grace);
    quorum = static_cast<std::size_t>(held.offer.rule.quorum);
  }
  std::ranges::sort(came);
  if (awaited == 0 || offers.closed) return came.back();
  quorum = std::min(quorum, came.size() + awaited);
  return came.size() < quorum ? kNever : deadline_after(came[quorum - 1], grace);
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
  for (auto& [worker, held] : next->second.by_worker) {
    picked.step = std::max(picked.step, held.offer.id.sent);
    picked.offers.emplace_back(worker, std::move(held.offer));
  }
  offers_.erase(next);
  return picked;
}

bool MergePool::ended() const {
  return offers_.empty() && std::ranges::all_of(workers_, [](State state) {
           return state == State::kFinished || state == State::kGone;
         });
}

}  // namespace isthmus
