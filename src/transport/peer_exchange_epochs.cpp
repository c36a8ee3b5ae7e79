// SPDX-License-Identifier: Apache-2.0
// Members that come and go: the coordinator decides, all begin again what is not committed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

// Frames about no round belong anywhere; those of an epoch still to be heard of wait for it.
bool ExchangeEngine::belongs(Rank from, const FrameHeader& head, const FrameBytes& bytes,
                             TimePoint now, Outbox& out) {
  if (!options_.elastic) {
    return head.epoch == options_.epoch;
  }
  if (peer_[index(from)].unheard) {
    return head.kind == FrameKind::kNote;
  }
  if (options_.hub && from == coordinator() &&
      (is_values(head.kind) || head.kind == FrameKind::kRequest ||
       head.kind == FrameKind::kBegun)) {
    return false;  // it takes part in no round
  }
  const bool part_of_it = options_.hub ? !is_hub() : is_member_ && !coordinates();
  if (head.epoch > membership_.number() && part_of_it) ask_for_news(now, out);
  switch (head.kind) {
    case FrameKind::kProbe:
    case FrameKind::kEcho:
    case FrameKind::kBye:
    case FrameKind::kNote:
    case FrameKind::kEpoch:
    case FrameKind::kGone:
      if (head.epoch < membership_.number()) remind(from, now, out);
      return true;
    default:
      break;
  }
  if (head.epoch > membership_.number()) {
    // Nobody is ahead of who decides.
    if (!coordinates() && !over_) ahead_.emplace_back(from, bytes);
    return false;
  }
  const std::uint32_t epoch = membership_.epoch_of(head.id.sent);
  if (head.epoch < epoch) remind(from, now, out);
  const bool of_hub = options_.hub && from == coordinator();
  return head.epoch == epoch && (of_hub || membership_.takes_part(from, head.id.sent));
}

void ExchangeEngine::lose(Rank peer, const std::string& why, TimePoint now, Outbox& out,
                          LossCause cause) {
  Peer& state = peer_[index(peer)];
  state.lost = true;
  state.why = why;
  state.cause = cause;
  if (live(peer)) state.fresh = false;
  if (gathers_) {
    let_go(peer);
    return;
  }
  if (options_.hub) {
    if (is_hub()) return;  // its owner waits a moment: it may be the hub that is cut off
    if (alone()) {
      const std::string text = fmt::format("cut off from the hub and all others: {}", why);
      epochs_.push_back({.number = membership_.number(),
                         .live = membership_.live(),
                         .who = options_.self,
                         .why = text});
      finish_with({ExchangeError::Kind::kEvicted, options_.self,
                   fmt::format("worker {} is {}", options_.self.value(), text)});
      return;
    }
    if (peer == coordinator()) return;
  }
  if (!options_.elastic || peer == coordinator()) {
    fail_what_needs(peer, out);
    if (options_.elastic && !state.left) end_without_coordinator(why);
  } else if (coordinates() && !over_ && membership_.leaves(peer) && state.left && !needs(peer)) {
    part_with(peer, now, out);  // it said goodbye when something still needed it
  } else if (!over_ && membership_.live(peer) && (!state.left || needs(peer))) {
    if (coordinates() && cause == LossCause::kStalled) {
      rifts_.note(options_.self, peer, why, now);
    } else if (coordinates() && cause == LossCause::kGivenUp) {
      rifts_.note(peer, options_.self, {}, now);
    } else if (coordinates()) {
      exclude(peer, why, now, out);
    } else if (any_open()) {  // until something waits for it, the coordinator will see for itself
      report(peer, cause, why, out);
    }
  }
}

/// Whether some round here cannot end without more from a peer that has taken leave.
bool ExchangeEngine::needs(Rank peer) const {
  return std::ranges::any_of(rounds_, [&](const auto& entry) {
    const auto& [id, open] = entry;
    if (open.closed || open.failure || !membership_.takes_part(peer, id.sent)) {
      return false;
    }
    const auto digests = dones_.find(id);
    const bool no_digest =
        coordinates() && (digests == dones_.end() || !digests->second.contains(peer));
    return open.round.owes(peer) || no_digest;
  });
}

// Of one that takes leave nothing is missing any more once the rounds it was in are through.
void ExchangeEngine::exclude(Rank peer, const std::string& why, TimePoint now, Outbox& out) {
  if (over_ || !membership_.live(peer)) {
    return;
  }
  if (membership_.leaves(peer) && membership_.until(peer) < closed_before()) {
    part_with(peer, now, out);
    return;
  }
  rifts_.gone(peer);
  EpochNews news(membership_.without(peer));
  news.epoch.who = peer;
  news.epoch.why = why;
  declare(std::move(news), now, out);
}

void ExchangeEngine::take_bye(Rank from, TimePoint now, Outbox& out) {
  peer_[index(from)].left = true;
  if (coordinates() && membership_.leaves(from) && !over_ && !needs(from)) {
    part_with(from, now, out);
  }
}

void ExchangeEngine::part_with(Rank peer, TimePoint now, Outbox& out) {
  EpochNews news(membership_.parted(peer));
  news.epoch.who = peer;
  news.epoch.after = membership_.until(peer);
  news.epoch.why = "it has taken leave";
  declare(std::move(news), now, out);
}

bool ExchangeEngine::release(Rank member, std::int64_t after, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(coordinates() && options_.elastic, options_.self.value());
  ISTHMUS_CHECK(member != options_.self);
  ISTHMUS_CHECK(after >= last_begun_.value(), after, last_begun_.value());
  if (over_ || !membership_.live(member) || membership_.leaves(member) ||
      membership_.count() <= options_.min_members) {
    return false;
  }
  EpochNews news(membership_.leaving(member, after));
  news.epoch.who = member;
  news.epoch.leaves = true;
  news.epoch.after = after;
  news.epoch.why = "it takes leave";
  declare(std::move(news), now, out);
  return true;
}

bool ExchangeEngine::may_leave() const { return !membership_.leaves(options_.self) || !any_open(); }

bool ExchangeEngine::all_left() const {
  if (!is_hub() && (!is_member_ || over_)) return true;
  if (!is_hub() && membership_.leaves(options_.self)) return peer_[index(coordinator())].lost;
  const std::vector<Rank> others = peers();
  if (is_hub() && others.empty()) return false;  // all were lost
  return std::ranges::all_of(others, [&](Rank rank) {
    const Peer& peer = peer_[index(rank)];
    return peer.left || (peer.lost && !is_hub());
  });
}

bool ExchangeEngine::admit(Rank joiner, std::int64_t after, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(coordinates() && options_.elastic, options_.self.value());
  ISTHMUS_CHECK(after >= last_begun_.value(), after, last_begun_.value());
  if (over_ || membership_.live(joiner) || peer_[index(joiner)].lost) {
    return false;
  }
  EpochNews news(membership_.with(joiner, after));
  news.epoch.who = joiner;
  news.epoch.joins = true;
  news.epoch.after = after;
  declare(std::move(news), now, out);
  return true;
}

/// To all who are in it, and to whom it is about; then here.
void ExchangeEngine::declare(EpochNews news, TimePoint now, Outbox& out) {
  for (const auto& [id, verdict] : verdicts_) {
    if (!verdict) news.committed.push_back(id);
  }
  news_ = std::move(news);
  const std::vector<std::byte> payload = news_->write();
  if (is_hub()) records_.push_back({HubRecord::Kind::kEpoch, payload});
  for (const Rank to : everyone_else()) {
    const bool about = to == news_->epoch.who;
    // A process that has taken a member's place and is not in the run has no part in its news.
    if (is_hub() && peer_[index(to)].fresh && !(about && news_->epoch.joins)) continue;
    if (news_->membership.live(to) || about) {
      peer_[index(to)].told.reset();
      send({.kind = FrameKind::kEpoch, .epoch = news_->epoch.number}, to, payload, out);
    }
  }
  enter(EpochNews(*news_), now, out);
}

/// A peer that still speaks of an earlier epoch has missed the news, or they are under way.
void ExchangeEngine::remind(Rank peer, TimePoint now, Outbox& out) {
  std::optional<TimePoint>& told = peer_[index(peer)].told;
  if (!news_) {
    return;
  }
  if (told && now - *told >= options_.retry_interval) {
    send({.kind = FrameKind::kEpoch, .epoch = news_->epoch.number}, peer, news_->write(), out);
    told = now;
  } else if (!told) {
    told = now;
  }
}

/// Others know of an epoch of which no news has come here. Who coordinates sees who has missed its
/// news by what it is sent: a hub has no open rounds and asks nobody for anything, and member 0
/// nobody who is left out, who may wait for others alone. Whoever speaks to it of an earlier epoch
/// is reminded.
void ExchangeEngine::ask_for_news(TimePoint now, Outbox& out) {
  if (asked_ && now - *asked_ < options_.retry_interval) return;
  if (std::exchange(asked_, now)) send({.kind = FrameKind::kProbe}, coordinator(), {}, out);
}

void ExchangeEngine::take_epoch(Rank from, const Frame& frame, TimePoint now, Outbox& out) {
  auto news = EpochNews::read(frame.payload, options_.members);
  const bool counts = from == coordinator() || options_.hub;  // whoever brings news of a hub
  if (!options_.elastic || !counts || !news || news->epoch.number <= membership_.number()) {
    return;
  }
  enter(*news, now, out);
  const Rank who = news->epoch.who;
  if (options_.hub && !news->epoch.joins && who != options_.self && !peer_[index(who)].fresh) {
    // It may have lost the hub, and be waiting for it. Its next process would take itself for in.
    send({.kind = FrameKind::kEpoch, .epoch = news->epoch.number}, who, frame.payload, out);
  }
}

/// Whether rounds that the news calls committed are so with the results of here. Those of the
/// next epoch were committed in this one, and without a member that stays nothing is; but who has
/// missed that it was left out may have the result of all where the others have begun again.
bool ExchangeEngine::means_own_results(const EpochNews& news) const {
  const Rank self = options_.self;
  if (is_hub() || news.epoch.number == membership_.number() + 1) return true;
  const bool stays =
      news.membership.live(self) && news.membership.came_in(self) == membership_.came_in(self);
  return stays || news.membership.has_left(self);
}

void ExchangeEngine::enter(const EpochNews& news, TimePoint now, Outbox& out) {
  note_changes(news);
  const bool begins_anew = news.membership.whole() != membership_.whole();
  const bool own = means_own_results(news);
  membership_ = news.membership;
  asked_.reset();
  const bool was_member = std::exchange(is_member_, is_hub() || live(options_.self));
  for (const SyncId& id : news.committed) {
    if (!own) break;
    // Shares of the next round come with COMMIT alone, and within the epoch they count.
    if (options_.moves_shares && !begins_anew) break;
    if (const auto found = rounds_.find(id); found != rounds_.end() && found->second.said_done &&
                                             !found->second.closed && !found->second.failure) {
      close(found->second);
    }
  }
  if (!is_member_) {
    if (was_member && !membership_.has_left(options_.self)) {
      finish_with({ExchangeError::Kind::kEvicted, options_.self,
                   fmt::format("the others count worker {} as gone: {}", options_.self.value(),
                               news.epoch.why)});
    }
    return;
  }
  if (begins_anew) take_back();  // all that is not committed
  std::erase_if(early_, [&](const auto& entry) {
    const bool before = parse_frame(*entry.second.front().second)->header.epoch <
                        membership_.epoch_of(entry.first.sent);
    if (before && gauge_) gauge_->forget(entry.first);
    return before;
  });
  for (auto& [id, open] : rounds_) {
    if (open.failure && !coordinates()) {
      tell(coordinator(), id, open.failure, out);  // the word before may have crossed the news
    } else if (!open.closed && !open.failure &&
               open.round.epoch() != membership_.epoch_of(id.sent)) {
      relaunch(open, now, out);
    }
  }
  progress(out);
  for (auto& [from, bytes] : std::exchange(ahead_, {})) {
    receive(from, std::move(bytes), now, out);
  }
}

/// Of an epoch that is to be entered. One that was missed shows too: who came since has gone
/// before. A joiner is told of itself alone, once it is in.
void ExchangeEngine::note_changes(const EpochNews& news) {
  const auto note = [&](Rank who, bool joins, bool leaves, std::int64_t after) {
    if (!is_member_ && who != options_.self) return;
    Epoch change = news.epoch;
    change.who = who;
    change.joins = joins;
    change.leaves = leaves;
    change.after = after;
    const bool the_news =
        who == news.epoch.who && joins == news.epoch.joins && leaves == news.epoch.leaves;
    if (!the_news) change.why = "";
    epochs_.push_back(std::move(change));
  };
  for (int m = 0; m < options_.members; ++m) {
    const Rank member(m);
    Peer& peer = peer_[index(member)];
    const bool was = membership_.live(member);
    const bool is = news.membership.live(member);
    const bool other = was && is && news.membership.came_in(member) != membership_.came_in(member);
    const std::int64_t until = news.membership.until(member);
    const bool leaves = until >= 0 && until != Membership::kStays;
    if (was && !other && leaves && !membership_.leaves(member)) note(member, false, true, until);
    if (was && (!is || other)) {
      if (!peer.fresh) peer.lost = true;  // else its next process has been faster than this news
      peer.unheard = false;
      note(member, false, false, !other && leaves ? until : -1);
    }
    if (is && (!was || other)) {
      if (measured_) measured_->forget(member);
      // What a member had lost before was a former process; what a joiner has lost, it has.
      const bool lost = (!is_member_ || peer.fresh) && peer.lost && !other;
      peer = Peer{.lost = lost, .why = std::move(peer.why), .patience = options_.retry_interval};
      note(member, true, false, news.membership.since(member));
    }
  }
}

void ExchangeEngine::relaunch(OpenRound& open, TimePoint now, Outbox& out) {
  if (gauge_) gauge_->forget(open.round.id());
  ISTHMUS_CHECK(open.retained.has_value(), open.round.id().sent.value());
  Contribution contribution = *open.retained;
  if (contribution.owner_residual) *contribution.owner_residual = open.residual;
  const std::uint64_t sent_before = open.round.wire_bytes();
  open.round = Round(std::move(contribution), place(open.round.id()));
  open.round.count_wire(sent_before);
  open.said_done = false;
  open.heard.assign(peer_.size(), now);
  announce(open, peers(), out);
  if (auto ok = open.round.launch(out); !ok) {
    fail(open, ok.error(), out);
  }
}

/// No round ends any more, here.
void ExchangeEngine::finish_with(const ExchangeError& error) {
  over_ = error;
  for (auto& [id, open] : rounds_) {
    if (!open.closed && !open.failure) open.failure = error;
  }
}

std::vector<Rank> ExchangeEngine::everyone_else() const {
  std::vector<Rank> result;
  for (int m = 0; m < options_.members; ++m) {
    if (m != options_.self.value()) {
      result.push_back(Rank(m));
    }
  }
  return result;  // a hub is nobody to share rounds with
}

std::vector<Rank> ExchangeEngine::peers() const {
  std::vector<Rank> result = everyone_else();
  std::erase_if(result, [&](Rank rank) { return !membership_.live(rank); });
  return result;
}

std::vector<Epoch> ExchangeEngine::take_epochs() { return std::exchange(epochs_, {}); }

}  // namespace isthmus
