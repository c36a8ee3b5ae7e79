// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/membership_protocol.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace isthmus {

bool MembershipProtocol::accepts(WorkerId from, const FrameHeader& head, const FrameBytes& bytes,
                                 TimePoint now, Outbox& out) {
  if (!options_.exchange.elastic) {
    return head.epoch == options_.exchange.epoch;
  }
  if (at_.members.peer(from).unheard) {
    return head.kind == FrameKind::kNote;
  }
  const bool of_hub = options_.exchange.hub && from == at_.members.coordinator();
  if (of_hub && (is_values(head.kind) || head.kind == FrameKind::kRequest ||
                 head.kind == FrameKind::kBegun)) {
    return false;  // it takes part in no round
  }
  const bool part_of_it = options_.exchange.hub
                              ? !at_.members.is_hub()
                              : at_.members.is_member() && !at_.members.coordinates();
  if (head.epoch > membership().number() && part_of_it) ask_for_news(now, out);
  switch (head.kind) {
    case FrameKind::kProbe:
    case FrameKind::kEcho:
    case FrameKind::kBye:
    case FrameKind::kNote:
    case FrameKind::kEpoch:
    case FrameKind::kGone:
      if (head.epoch < membership().number()) remind(from, now, out);
      return true;
    default:
      break;
  }
  if (head.epoch > membership().number()) {
    // No member is ahead of the coordinator.
    if (!at_.members.coordinates() && !at_.rounds.ended()) ahead_.emplace_back(from, bytes);
    return false;
  }
  const std::uint32_t epoch = membership().epoch_of(head.id.sent);
  if (head.epoch < epoch) remind(from, now, out);
  return head.epoch == epoch && (of_hub || membership().takes_part(from, head.id.sent));
}

void MembershipProtocol::exclude(WorkerId peer, const std::string& why, TimePoint now,
                                 Outbox& out) {
  if (at_.rounds.ended() || !membership().live(peer)) {
    return;
  }
  if (membership().leaves(peer) && membership().until(peer) < at_.rounds.closed_before()) {
    part_with(peer, now, out);
    return;
  }
  at_.reports.gone(peer);
  EpochNews news(membership().without(peer));
  news.epoch.who = peer;
  news.epoch.why = why;
  declare(std::move(news), now, out);
}

void MembershipProtocol::part_with(WorkerId peer, TimePoint now, Outbox& out) {
  EpochNews news(membership().parted(peer));
  news.epoch.who = peer;
  news.epoch.after = membership().until(peer);
  news.epoch.why = "it has taken leave";
  declare(std::move(news), now, out);
}

bool MembershipProtocol::release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(at_.members.coordinates() && options_.exchange.elastic, options_.self.value());
  ISTHMUS_CHECK(member != options_.self);
  const StepIndex last = at_.rounds.last_begun();
  ISTHMUS_CHECK(after >= last.value(), after, last.value());
  if (at_.rounds.ended() || !membership().live(member) || membership().leaves(member) ||
      membership().count() <= options_.exchange.min_members) {
    return false;
  }
  EpochNews news(membership().leaving(member, after));
  news.epoch.who = member;
  news.epoch.leaves = true;
  news.epoch.after = after;
  news.epoch.why = "it takes leave";
  declare(std::move(news), now, out);
  return true;
}

bool MembershipProtocol::admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(at_.members.coordinates() && options_.exchange.elastic, options_.self.value());
  const StepIndex last = at_.rounds.last_begun();
  ISTHMUS_CHECK(after >= last.value(), after, last.value());
  if (at_.rounds.ended() || membership().live(joiner) || at_.members.peer(joiner).lost) {
    return false;
  }
  EpochNews news(membership().with(joiner, after));
  news.epoch.who = joiner;
  news.epoch.joins = true;
  news.epoch.after = after;
  declare(std::move(news), now, out);
  return true;
}

/// To all members of the epoch, and to the member that it is about; then here.
void MembershipProtocol::declare(EpochNews news, TimePoint now, Outbox& out) {
  for (const SyncId& id : at_.commit.committed()) news.committed.push_back(id);
  news_ = std::move(news);
  const std::vector<std::byte> payload = news_->write();
  if (at_.members.is_hub()) at_.decisions.push_back({HubRecord::Kind::kEpoch, payload});
  for (const WorkerId to : at_.members.everyone_else()) {
    const bool about = to == news_->epoch.who;
    // A process that has taken a member's place and is not in the run has no part in its news.
    if (at_.members.is_hub() && at_.members.peer(to).fresh && !(about && news_->epoch.joins)) {
      continue;
    }
    if (news_->membership.live(to) || about) {
      at_.members.peer(to).told.reset();
      at_.sender.send({.kind = FrameKind::kEpoch, .epoch = news_->epoch.number}, to, payload, out);
    }
  }
  enter(EpochNews(*news_), now, out);
}

/// A peer that still speaks of an earlier epoch has missed the news, or they are under way.
void MembershipProtocol::remind(WorkerId peer, TimePoint now, Outbox& out) {
  std::optional<TimePoint>& told = at_.members.peer(peer).told;
  if (!news_) {
    return;
  }
  if (told && now - *told >= options_.exchange.retry_interval) {
    tell(peer, out);
    told = now;
  } else if (!told) {
    told = now;
  }
}

void MembershipProtocol::tell(WorkerId peer, Outbox& out) {
  if (!news_) return;
  at_.sender.send({.kind = FrameKind::kEpoch, .epoch = news_->epoch.number}, peer, news_->write(),
                  out);
}

/// Other members know of an epoch whose news has not arrived here. The coordinator sees by incoming
/// frames which members have missed its news: a hub has no open rounds and requests nothing, and
/// member 0 requests nothing of a member that was left out, which may wait for others alone. A
/// member that speaks to the coordinator of an earlier epoch is reminded.
void MembershipProtocol::ask_for_news(TimePoint now, Outbox& out) {
  if (asked_ && now - *asked_ < options_.exchange.retry_interval) return;
  if (std::exchange(asked_, now)) {
    at_.sender.send({.kind = FrameKind::kProbe}, at_.members.coordinator(), {}, out);
  }
}

void MembershipProtocol::take_epoch(WorkerId from, const Frame& frame, TimePoint now, Outbox& out) {
  auto news = EpochNews::read(frame.payload, options_.members);
  // Of a hub's news the bringer does not matter.
  const bool counts = from == at_.members.coordinator() || options_.exchange.hub;
  if (!options_.exchange.elastic || !counts || !news ||
      news->epoch.number <= membership().number()) {
    return;
  }
  enter(*news, now, out);
  const WorkerId who = news->epoch.who;
  if (options_.exchange.hub && !news->epoch.joins && who != options_.self &&
      !at_.members.peer(who).fresh) {
    // It may have lost the hub, and be waiting for it. Its next process would take itself for in.
    at_.sender.send({.kind = FrameKind::kEpoch, .epoch = news->epoch.number}, who, frame.payload,
                    out);
  }
}

/// Whether rounds that the news call committed are so with the results of here. Those of the next
/// epoch were committed in this one, and without a member that stays nothing is; but a member that
/// has missed that it was left out may have the result of all where the others have begun again.
bool MembershipProtocol::means_own_results(const EpochNews& news) const {
  const WorkerId self = options_.self;
  if (at_.members.is_hub() || news.epoch.number == membership().number() + 1) return true;
  const bool stays =
      news.membership.live(self) && news.membership.came_in(self) == membership().came_in(self);
  return stays || news.membership.has_left(self);
}

void MembershipProtocol::enter(const EpochNews& news, TimePoint now, Outbox& out) {
  note_changes(news);
  const bool begins_anew = news.membership.whole() != membership().whole();
  const bool own = means_own_results(news);
  const bool was_member = at_.members.enter(news.membership);
  asked_.reset();
  for (const SyncId& id : news.committed) {
    if (!own) break;
    if (OpenRound* open = at_.rounds.find(id);
        open != nullptr && open->said_done && open->pending()) {
      at_.commit.close(*open);
    }
  }
  if (!at_.members.is_member()) {
    if (was_member && !membership().has_left(options_.self)) {
      at_.rounds.end_all({ExchangeError::Kind::kEvicted, options_.self,
                          fmt::format("the others count worker {} as gone: {}",
                                      options_.self.value(), news.epoch.why)});
    }
    return;
  }
  if (begins_anew) at_.rollback.take_back();  // all that is not committed
  at_.rounds.drop_outdated_early();
  for (auto& [id, open] : at_.rounds.all()) {
    if (open.failure && !at_.members.coordinates()) {
      // The word before may have crossed the news.
      at_.commit.tell(at_.members.coordinator(), id, open.failure, out);
    } else if (open.pending() && open.round.epoch() != membership().epoch_of(id.sent)) {
      relaunch(open, now, out);
    }
  }
  at_.commit.progress(out);
  for (auto& [from, bytes] : std::exchange(ahead_, {})) {
    deliver_(from, std::move(bytes), now, out);
  }
}

/// The changes of an epoch that is about to be entered. A missed epoch shows too: a member that
/// came since has left before. A joiner is told of itself alone, once it is in.
void MembershipProtocol::note_changes(const EpochNews& news) {
  const auto note = [&](WorkerId who, bool joins, bool leaves, std::int64_t after) {
    if (!at_.members.is_member() && who != options_.self) return;
    Epoch change = news.epoch;
    change.who = who;
    change.joins = joins;
    change.leaves = leaves;
    change.after = after;
    const bool the_news =
        who == news.epoch.who && joins == news.epoch.joins && leaves == news.epoch.leaves;
    if (!the_news) change.why = "";
    entered_.push_back(std::move(change));
  };
  for (int m = 0; m < options_.members; ++m) {
    const WorkerId member(m);
    Peer& peer = at_.members.peer(member);
    const bool was = membership().live(member);
    const bool is = news.membership.live(member);
    const bool other = was && is && news.membership.came_in(member) != membership().came_in(member);
    const std::int64_t until = news.membership.until(member);
    const bool leaves = until >= 0 && until != Membership::kStays;
    if (was && !other && leaves && !membership().leaves(member)) note(member, false, true, until);
    if (was && (!is || other)) {
      if (!peer.fresh) peer.lost = true;  // else its next process has been faster than this news
      peer.unheard = false;
      note(member, false, false, !other && leaves ? until : -1);
    }
    if (is && (!was || other)) {
      // A loss of the member's earlier process does not count for the new one; a joiner keeps the
      // losses that it has noted itself.
      const bool lost = (!at_.members.is_member() || peer.fresh) && peer.lost && !other;
      peer = Peer{
          .lost = lost, .why = std::move(peer.why), .patience = options_.exchange.retry_interval};
      note(member, true, false, news.membership.since(member));
    }
  }
}

void MembershipProtocol::relaunch(OpenRound& open, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(open.retained.has_value(), open.round.id().sent.value());
  const SharedContribution& contribution = *open.retained;
  if (contribution.form.owner_residual) *contribution.form.owner_residual = open.residual;
  const std::uint64_t sent_before = open.round.wire_bytes();
  open.round = Round(contribution, at_.rounds.place(open.round.id()));
  open.round.count_wire(sent_before);
  open.said_done = false;
  open.heard.assign(at_.members.processes(), now);
  at_.proxies.announce(open, at_.members.peers(), out);
  if (auto ok = open.round.launch(out); !ok) {
    at_.commit.fail(open, ok.error(), out);
  }
}

void MembershipProtocol::stand_aside() {
  at_.members.stand_aside();
  ahead_.clear();
  entered_.clear();
}

void MembershipProtocol::cut_off(const std::string& why) {
  const std::string text = fmt::format("cut off from the hub and all others: {}", why);
  entered_.push_back({.number = membership().number(),
                      .live = membership().live(),
                      .who = options_.self,
                      .why = text});
  at_.rounds.end_all({ExchangeError::Kind::kEvicted, options_.self,
                      fmt::format("worker {} is {}", options_.self.value(), text)});
}

void MembershipProtocol::restore(std::optional<EpochNews> news) {
  news_ = std::move(news);
  if (news_) {
    at_.members.enter(news_->membership);
  } else {
    at_.members.restart();
  }
}

}  // namespace isthmus
