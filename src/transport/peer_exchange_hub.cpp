// SPDX-License-Identifier: Apache-2.0
// A hub that dies and comes back: what it takes over, and what members tell it again.
#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

void ExchangeEngine::restore(std::span<const HubRecord> records) {
  ISTHMUS_CHECK(is_hub(), options_.self.value());
  membership_ = Membership(options_.members, options_.epoch, true);
  news_.reset();
  over_.reset();
  dones_.clear();
  verdicts_.clear();
  committed_.clear();
  newest_.clear();
  told_shares_.clear();
  start_measuring();  // of another run nothing counts
  for (const HubRecord& record : records) {
    if (record.kind == HubRecord::Kind::kEpoch) {
      const auto news = EpochNews::read(record.body, options_.members);
      ISTHMUS_CHECK(news.has_value());
      news_ = *news;
      membership_ = news_->membership;
    } else {
      const auto commit = read_commit(record);
      ISTHMUS_CHECK(commit.has_value());
      verdicts_.emplace(commit->first, std::nullopt);
      committed_.emplace(commit->first, commit->second);
      note_final(commit->first, commit->second);
      restore_shares(record, commit->first);
    }
  }
  go_on_with_shares();
  for (const Rank peer : everyone_else()) {
    peer_[index(peer)].unheard = membership_.live(peer);
    peer_[index(peer)].left = false;
    peer_[index(peer)].closed_before = 0;
  }
}

std::vector<HubRecord> ExchangeEngine::take_records() { return std::exchange(records_, {}); }

std::vector<HubRecord> ExchangeEngine::history() const {
  std::vector<HubRecord> records;
  if (news_) records.push_back({HubRecord::Kind::kEpoch, news_->write()});
  // The last one of each fragment even where nobody asks for it any more: by it members tell
  // whether a log is as new as what they have been told.
  std::map<SyncId, Digest128> kept = committed_;
  for (const auto& [fragment, last] : newest_) {
    kept.emplace(SyncId{fragment, last.first}, last.second);
  }
  for (const auto& [id, digest] : kept) {
    records.push_back(commit_record(id, digest, shares_told(id)));
  }
  return records;
}

void ExchangeEngine::note_final(const SyncId& id, const Digest128& digest) {
  const auto [last, fresh] = newest_.emplace(id.fragment, std::pair(id.sent, digest));
  if (!fresh && last->second.first < id.sent) last->second = {id.sent, digest};
}

Decided ExchangeEngine::decided() const {
  Decided decided{.epoch = membership_.number()};
  for (const auto& [fragment, last] : newest_) decided.newest.push_back({fragment, last.first});
  return decided;
}

void ExchangeEngine::stands(Rank peer, TimePoint now, Outbox& out) {
  peer_[index(peer)].unheard = false;
  peer_[index(peer)].told = now;
  if (live(peer)) peer_[index(peer)].fresh = false;
  if (news_) {
    send({.kind = FrameKind::kEpoch, .epoch = news_->epoch.number}, peer, news_->write(), out);
  }
}

void ExchangeEngine::tell_hub_again(TimePoint now, Outbox& out) {
  if (over_) {
    return;
  }
  for (auto& [id, open] : rounds_) {
    if (open.failure) {
      tell(coordinator(), id, open.failure, out);
    } else if (open.said_done && !open.closed) {
      repeat_done(open, out);
    }
  }
  for (const Rank peer : peers()) {
    if (peer_[index(peer)].lost) lose_again(peer, now, out);
  }
  if (leaving_) send({.kind = FrameKind::kBye}, coordinator(), {}, out);
}

/// Whether this member, which has lost the hub, has lost all others too. Those that have left in
/// order are not lost, a run of one member just waits for its hub, and before the first round there
/// is nothing to be cut off from: who is away may still be on its way.
bool ExchangeEngine::alone() const {
  if (rounds_.empty() && last_begun_ == StepIndex(0)) return false;
  const std::vector<Rank> others = peers();
  const auto lost = [&](Rank rank) { return peer_[index(rank)].lost; };
  const auto left = [&](Rank rank) { return peer_[index(rank)].left; };
  return options_.hub && !is_hub() && is_member_ && !over_ && lost(coordinator()) &&
         std::ranges::all_of(others, [&](Rank rank) { return lost(rank) || left(rank); }) &&
         std::ranges::any_of(others, [&](Rank rank) { return lost(rank) && !left(rank); });
}

}  // namespace isthmus
