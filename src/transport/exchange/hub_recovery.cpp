// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/hub_recovery.h"

#include "core/base/check.h"

namespace isthmus {

void HubRecovery::restore(std::span<const HubRecord> records) {
  ISTHMUS_CHECK(at_.members.is_hub(), options_.self.value());
  at_.epochs.restore(std::nullopt);
  at_.rounds.revive();
  at_.commit.restart();
  for (const HubRecord& record : records) {
    if (record.kind == HubRecord::Kind::kEpoch) {
      const auto news = EpochNews::read(record.body, options_.members);
      ISTHMUS_CHECK(news.has_value());
      at_.epochs.restore(*news);
    } else {
      const auto commit = read_commit(record);
      ISTHMUS_CHECK(commit.has_value());
      at_.commit.restore(commit->first, commit->second);
    }
  }
  for (const WorkerId rank : at_.members.everyone_else()) {
    Peer& peer = at_.members.peer(rank);
    peer.unheard = at_.members.live(rank);
    peer.left = false;
    peer.closed_before = 0;
  }
}

std::vector<HubRecord> HubRecovery::history() const {
  std::vector<HubRecord> records;
  if (const auto& news = at_.epochs.last_news()) {
    records.push_back({HubRecord::Kind::kEpoch, news->write()});
  }
  for (HubRecord& record : at_.commit.history()) records.push_back(std::move(record));
  return records;
}

Decided HubRecovery::decided() const {
  Decided decided{.epoch = at_.members.membership().number()};
  for (const auto& [fragment, last] : at_.commit.newest()) {
    decided.newest.push_back({fragment, last.first});
  }
  return decided;
}

void HubRecovery::stands(WorkerId peer, TimePoint now, Outbox& out) {
  Peer& state = at_.members.peer(peer);
  state.unheard = false;
  state.told = now;
  if (at_.members.live(peer)) state.fresh = false;
  at_.epochs.tell(peer, out);
}

void HubRecovery::tell_again(TimePoint now, Outbox& out) {
  if (at_.rounds.ended()) {
    return;
  }
  for (auto& [id, open] : at_.rounds.all()) {
    if (open.failure) {
      at_.commit.tell(at_.members.coordinator(), id, open.failure, out);
    } else if (open.said_done && !open.closed) {
      at_.commit.repeat_done(open, out);
    }
  }
  for (const WorkerId peer : at_.members.peers()) {
    if (at_.members.peer(peer).lost) at_.losses.lose_again(peer, now, out);
  }
  if (at_.members.leaving()) {
    at_.sender.send({.kind = FrameKind::kBye}, at_.members.coordinator(), {}, out);
  }
}

}  // namespace isthmus
