// SPDX-License-Identifier: Apache-2.0
// Where rounds have a deadline: a member that is late for one takes part without its work. Its own
// engine, which lives while its training computes, begins the round in its name with weight 0, so
// for the others it is a member like any: it owns its parts, agrees, commits. When its training
// gets there, its contribution is too late, and what the round came to is there.
//
// Nothing is agreed on. Each member says what it has begun, and which round before that; so who is
// behind knows what comes next, and begins nothing out of order, whatever was lost on the way. Both
// count only as two thirds say them alike: no single member's word makes anybody begin anything.
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

/// Rounds of a fragment in a member's name that its training has not met; each is a result kept.
constexpr std::ptrdiff_t kMostAhead = 2;
/// Rounds not begun here that are kept of one member. Honest ones are ahead by less: a fragment's
/// next round but one is not through without this member.
constexpr std::ptrdiff_t kMostHeardOf = 512;
/// Before a round that may not be begun yet is looked at again.
constexpr Duration kShortestPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);

}  // namespace

void ExchangeEngine::announce(const OpenRound& open, const std::vector<Rank>& to, Outbox& out) {
  if (!options_.deadline) return;
  const SyncId& id = open.round.id();
  FrameHeader head{.kind = FrameKind::kBegun, .id = id, .part = kNoRoundBefore};
  if (open.before) {
    head.part = static_cast<std::uint32_t>(open.before->fragment.value());
    head.offset = static_cast<std::uint64_t>(open.before->sent.value());
  }
  for (const Rank rank : to) {
    if (membership_.takes_part(rank, id.sent)) send(head, rank, {}, out);
  }
}

void ExchangeEngine::take_begun(Rank from, const FrameHeader& head) {
  const SyncId& id = head.id;
  if (!options_.deadline || rounds_.contains(id) || over(id)) return;
  const auto of_it = std::ranges::count_if(
      ahead_of_here_, [&](const auto& each) { return each.second.begun.contains(from); });
  if (of_it >= kMostHeardOf) return;
  std::optional<SyncId> before;
  if (head.part != kNoRoundBefore) {
    before = SyncId{FragmentId(static_cast<int>(head.part)),
                    StepIndex(static_cast<std::int64_t>(head.offset))};
  }
  ahead_of_here_[id].begun.insert_or_assign(from, before);
}

/// Counts who has begun what. Two thirds of those who take part are enough, this member not among
/// them, that name the same round before: so of two, it is waited for, and two rounds before cannot
/// both have enough.
void ExchangeEngine::look_ahead(TimePoint now) {
  std::erase_if(ahead_of_here_,
                [&](const auto& each) { return rounds_.contains(each.first) || over(each.first); });
  for (auto& [id, ahead] : ahead_of_here_) {
    const std::vector<bool> members = membership_.members_of(id.sent);
    const auto all = std::ranges::count(members, true);
    std::map<SyncId, int> named;
    for (const auto& [rank, before] : ahead.begun) {
      if (before && members[static_cast<std::size_t>(rank.value())]) ++named[*before];
    }
    const auto most =
        std::ranges::max_element(named, {}, [](const auto& each) { return each.second; });
    ahead.others = most == named.end() ? 0 : most->second;
    if (ahead.others < std::max<std::ptrdiff_t>(options_.min_members, (2 * all + 2) / 3)) {
      ahead.before.reset();
      ahead.enough_since.reset();
      continue;
    }
    ahead.before = most->first;
    if (!ahead.enough_since) {
      const Duration late = options_.deadline->get();
      ahead.enough_since = now;
      ahead.due = late >= kNever - now ? kNever : now + late;
    }
  }
}

/// The round that follows the last one begun here, once enough have begun it.
std::optional<SyncId> ExchangeEngine::next_ahead() const {
  const auto next = std::ranges::find_if(ahead_of_here_, [&](const auto& each) {
    return begun_last_ && each.second.enough_since && each.second.before == begun_last_;
  });
  if (next == ahead_of_here_.end()) return std::nullopt;
  return next->first;
}

bool ExchangeEngine::may_stand_in(const SyncId& id, TimePoint now) {
  const auto unmet = std::ranges::count_if(rounds_, [&](const auto& each) {
    return each.first.fragment == id.fragment && each.second.in_its_name;
  });
  return forms_.contains(id.fragment) && id.sent >= last_begun_ && unmet < kMostAhead &&
         membership_.takes_part(options_.self, id.sent) && knows_shares(id) &&
         is_let_stand_in(id.sent, now);
}

/// Frames come by thousands, and who is asked shares a lock with the training: so not at each.
bool ExchangeEngine::is_let_stand_in(StepIndex sent, TimePoint now) {
  if (!options_.may_stand_in) return true;
  if (now < ask_again_) return false;
  const bool let = options_.may_stand_in(sent);
  if (!let) ask_again_ = now + pause_of_standing_in();
  return let;
}

Duration ExchangeEngine::pause_of_standing_in() const {
  return std::clamp(options_.deadline->get(), kShortestPause, kLongestPause);
}

bool ExchangeEngine::stands_in() const {
  return options_.deadline && !over_ && !given_up_ && !leaving_ && is_member_;
}

void ExchangeEngine::stand_in(TimePoint now, Outbox& out) {
  if (options_.deadline) look_ahead(now);
  while (stands_in()) {
    const std::optional<SyncId> id = next_ahead();
    if (!id) return;
    const RoundAhead& ahead = ahead_of_here_.at(*id);
    if (ahead.due > now) return;
    if (!may_stand_in(*id, now)) {
      look_again_ = now + pause_of_standing_in();
      return;
    }
    const TimePoint since = *ahead.enough_since;
    stood_in_.push_back({.id = *id, .late = now - since, .others = ahead.others});
    ++missed_[id->fragment];
    Contribution none = forms_.at(id->fragment);
    none.id = *id;
    open(Round(none, place(*id)), true, none, since, now, out);
  }
}

TimePoint ExchangeEngine::next_stand_in() const {
  const std::optional<SyncId> id = stands_in() ? next_ahead() : std::nullopt;
  if (!id) return kNever;
  return std::max(ahead_of_here_.at(*id).due, look_again_);
}

bool ExchangeEngine::meet(const SyncId& id, TimePoint now) {
  const auto found = rounds_.find(id);
  if (found == rounds_.end() || !found->second.in_its_name) return false;
  options_.deadline->began(now - *found->second.in_its_name);
  found->second.in_its_name.reset();
  look_again_ = ask_again_ = {};  // the fragment's next round but one may be begun now
  return true;
}

/// This member begins a round itself: so the fragment's next ones look too. What its owner keeps of
/// one for the next cannot be in two rounds, so such a fragment is waited for.
void ExchangeEngine::keep_form(const Contribution& own, TimePoint now) {
  const auto ahead = ahead_of_here_.find(own.id);
  const bool late = ahead != ahead_of_here_.end() && ahead->second.enough_since;
  options_.deadline->began(late ? now - *ahead->second.enough_since : Duration{0});
  missed_.erase(own.id.fragment);
  look_again_ = ask_again_ = {};  // of another round than before
  if (own.owner_residual) {
    forms_.erase(own.id.fragment);
    return;
  }
  forms_[own.id.fragment] = {.id = own.id,
                             .encoded = {own.encoded.values, {}},
                             .codec = own.codec,
                             .weight = 0,
                             .kind = own.kind};
}

std::optional<StepIndex> ExchangeEngine::begun_ahead() const {
  std::optional<StepIndex> last;
  for (const auto& [id, open] : rounds_) {
    if (open.in_its_name) last = std::max(last.value_or(id.sent), id.sent);
  }
  return last;
}

int ExchangeEngine::missed_in_a_row() const {
  int most = 0;
  for (const auto& [fragment, missed] : missed_) most = std::max(most, missed);
  return most;
}

std::vector<StoodIn> ExchangeEngine::take_stood_in() { return std::exchange(stood_in_, {}); }

}  // namespace isthmus
