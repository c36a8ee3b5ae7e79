// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/proxy_rounds.h"

#include <algorithm>
#include <utility>

#include "core/base/deadline.h"

namespace isthmus {
namespace {

/// Rounds of a fragment in a member's name that its training has not met; each is a result kept.
constexpr std::ptrdiff_t kMostAhead = 2;
/// Bound of the rounds that are kept of one member and have not begun here. Honest members are
/// ahead by less: a fragment's next round but one does not end without this member.
constexpr std::ptrdiff_t kMostHeardOf = 512;
/// Before a round that may not be begun yet is looked at again.
constexpr Duration kShortestPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);

}  // namespace

std::optional<SyncId> ProxyRounds::begun(const SyncId& id) {
  ahead_.erase(id);
  return std::exchange(begun_last_, id);
}

void ProxyRounds::announce(const OpenRound& open, const std::vector<WorkerId>& to, Outbox& out) {
  if (!deadline_) return;
  const SyncId& id = open.round.id();
  FrameHeader head{.kind = FrameKind::kBegun, .id = id, .part = kNoRoundBefore};
  if (open.before) {
    head.part = static_cast<std::uint32_t>(open.before->fragment.value());
    head.offset = static_cast<std::uint64_t>(open.before->sent.value());
  }
  for (const WorkerId rank : to) {
    if (members_.membership().takes_part(rank, id.sent)) sender_.send(head, rank, {}, out);
  }
}

void ProxyRounds::take_begun(WorkerId from, const FrameHeader& head) {
  const SyncId& id = head.id;
  if (!deadline_ || rounds_.contains(id) || rounds_.over(id)) return;
  const auto of_it = std::ranges::count_if(
      ahead_, [&](const auto& each) { return each.second.begun.contains(from); });
  if (of_it >= kMostHeardOf) return;
  std::optional<SyncId> before;
  if (head.part != kNoRoundBefore) {
    before = SyncId{FragmentId(static_cast<int>(head.part)),
                    StepIndex(static_cast<std::int64_t>(head.offset))};
  }
  ahead_[id].begun.insert_or_assign(from, before);
}

// Two thirds of the members that take part are enough, this member not among them, that name the
// same round before: so of two, it is waited for, and two rounds before cannot both have enough.
void ProxyRounds::look_ahead(TimePoint now) {
  if (!deadline_) return;
  std::erase_if(ahead_, [&](const auto& each) {
    return rounds_.contains(each.first) || rounds_.over(each.first);
  });
  for (auto& [id, ahead] : ahead_) {
    const std::vector<bool> members = members_.membership().members_of(id.sent);
    const auto all = std::ranges::count(members, true);
    std::map<SyncId, int> named;
    for (const auto& [rank, before] : ahead.begun) {
      if (before && members[static_cast<std::size_t>(rank.value())]) ++named[*before];
    }
    const auto most =
        std::ranges::max_element(named, {}, [](const auto& each) { return each.second; });
    ahead.others = most == named.end() ? 0 : most->second;
    if (ahead.others < std::max<std::ptrdiff_t>(options_.exchange.min_members, (2 * all + 2) / 3)) {
      ahead.before.reset();
      ahead.enough_since.reset();
      continue;
    }
    ahead.before = most->first;
    if (!ahead.enough_since) {
      const Duration late = deadline_->get();
      ahead.enough_since = now;
      ahead.due = deadline_after(now, late);
    }
  }
}

/// The round that follows the last one begun here, once enough have begun it.
std::optional<SyncId> ProxyRounds::next_ahead() const {
  const auto next = std::ranges::find_if(ahead_, [&](const auto& each) {
    return begun_last_ && each.second.enough_since && each.second.before == begun_last_;
  });
  if (next == ahead_.end()) return std::nullopt;
  return next->first;
}

bool ProxyRounds::may_begin(const SyncId& id, TimePoint now) {
  const auto unmet = std::ranges::count_if(rounds_.all(), [&](const auto& each) {
    return each.first.fragment == id.fragment && each.second.in_its_name;
  });
  return forms_.contains(id.fragment) && id.sent >= rounds_.last_begun() && unmet < kMostAhead &&
         members_.membership().takes_part(members_.self(), id.sent) &&
         training_allows(id.sent, now);
}

/// Frames arrive by thousands, and the callback shares a lock with the training, so it is not asked
/// at each frame.
bool ProxyRounds::training_allows(StepIndex sent, TimePoint now) {
  if (!options_.exchange.may_proxy) return true;
  if (now < ask_again_) return false;
  const bool allows = options_.exchange.may_proxy(sent);
  if (!allows) ask_again_ = now + pause();
  return allows;
}

Duration ProxyRounds::pause() const {
  return std::clamp(deadline_->get(), kShortestPause, kLongestPause);
}

bool ProxyRounds::enabled() const {
  return deadline_ && !rounds_.ended() && !rounds_.given_up() && !members_.leaving() &&
         members_.is_member();
}

std::optional<ProxyRounds::Due> ProxyRounds::take_due(TimePoint now) {
  const std::optional<SyncId> id = enabled() ? next_ahead() : std::nullopt;
  if (!id) return std::nullopt;
  const RoundAhead& ahead = ahead_.at(*id);
  if (ahead.due > now) return std::nullopt;
  if (!may_begin(*id, now)) {
    look_again_ = now + pause();
    return std::nullopt;
  }
  const TimePoint since = *ahead.enough_since;
  begun_so_.push_back({.id = *id, .late = now - since, .others = ahead.others});
  ++missed_[id->fragment];
  Contribution none = forms_.at(id->fragment);
  none.id = *id;
  return Due{std::move(none), since};
}

TimePoint ProxyRounds::due() const {
  const std::optional<SyncId> id = enabled() ? next_ahead() : std::nullopt;
  if (!id) return kNever;
  return std::max(ahead_.at(*id).due, look_again_);
}

void ProxyRounds::met(TimePoint since, TimePoint now) {
  deadline_->began(now - since);
  look_again_ = ask_again_ = {};  // the fragment's next round but one may be begun now
}

// An owner's residual of one round is used in the next and cannot be in two rounds, so a fragment
// with such a residual is waited for.
void ProxyRounds::keep_form(const Contribution& own, TimePoint now) {
  if (!deadline_) return;
  const auto ahead = ahead_.find(own.id);
  const bool late = ahead != ahead_.end() && ahead->second.enough_since;
  deadline_->began(late ? now - *ahead->second.enough_since : Duration{0});
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

std::optional<StepIndex> ProxyRounds::begun_ahead() const {
  std::optional<StepIndex> last;
  for (const auto& [id, open] : rounds_.all()) {
    if (open.in_its_name) last = std::max(last.value_or(id.sent), id.sent);
  }
  return last;
}

int ProxyRounds::missed_in_a_row() const {
  int most = 0;
  for (const auto& [fragment, missed] : missed_) most = std::max(most, missed);
  return most;
}

}  // namespace isthmus
