// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::size_t kMembershipHeadBytes = 36;
constexpr std::size_t kChangeBytes = 12;
constexpr std::size_t kMemberBytes = 24;
constexpr std::size_t kIdBytes = 12;
/// No open round is older than this number of agreed joins and leaves.
constexpr std::size_t kMostChanges = 64;
/// The event of the member that an epoch is about.
enum What : std::uint16_t { kGone, kJoins, kLeaves };

std::int64_t signed_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

Membership::Membership(int members, std::uint32_t epoch, bool all_live)
    : number_(epoch),
      whole_(epoch),
      live_(static_cast<std::size_t>(members), all_live),
      since_(live_.size(), -1),
      until_(live_.size(), all_live ? kStays : -1),
      came_in_(live_.size(), 0) {}

int Membership::count() const {
  int staying = 0;
  for (std::size_t m = 0; m < live_.size(); ++m) staying += live_[m] && until_[m] == kStays ? 1 : 0;
  return staying;
}

bool Membership::takes_part(WorkerId member, StepIndex sent) const {
  return sent.value() > since_[index(member)] && sent.value() <= until_[index(member)];
}

std::vector<bool> Membership::members_of(StepIndex sent) const {
  std::vector<bool> members(live_.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    members[m] = takes_part(WorkerId(static_cast<int>(m)), sent);
  }
  return members;
}

std::uint32_t Membership::epoch_of(StepIndex sent) const {
  std::uint32_t epoch = whole_;
  for (const Change& change : changes_) {
    if (sent.value() > change.after) epoch = change.number;
  }
  return epoch;
}

Membership Membership::without(WorkerId member) const {
  ISTHMUS_CHECK(live(member), member.value());
  Membership next = *this;
  next.whole_ = ++next.number_;
  next.changes_.clear();
  next.live_[index(member)] = false;
  next.until_[index(member)] = -1;
  return next;
}

void Membership::change_after(std::int64_t after) {
  changes_.push_back({++number_, after});
  if (changes_.size() > kMostChanges) changes_.erase(changes_.begin());
}

Membership Membership::leaving(WorkerId member, std::int64_t after) const {
  ISTHMUS_CHECK(live(member), member.value());
  ISTHMUS_CHECK(!leaves(member), member.value(), until(member));
  Membership next = *this;
  next.change_after(after);
  next.until_[index(member)] = after;
  return next;
}

Membership Membership::parted(WorkerId member) const {
  ISTHMUS_CHECK(leaves(member), member.value());
  Membership next = *this;
  ++next.number_;
  next.live_[index(member)] = false;
  return next;
}

Membership Membership::with(WorkerId member, std::int64_t after) const {
  ISTHMUS_CHECK(!live(member), member.value());
  Membership next = *this;
  next.change_after(after);
  next.live_[index(member)] = true;
  next.since_[index(member)] = after;
  next.until_[index(member)] = kStays;
  next.came_in_[index(member)] = next.number_;
  return next;
}

std::vector<std::byte> EpochNews::write() const {
  const std::vector<bool>& live = membership.live_;
  std::vector<std::byte> bytes(kMembershipHeadBytes + kChangeBytes * membership.changes_.size() +
                               kMemberBytes * live.size() + kIdBytes * committed.size() +
                               epoch.why.size());
  FieldWriter out(bytes);
  out.put(membership.number_);
  out.put(membership.whole_);
  out.put(static_cast<std::uint32_t>(epoch.who.value()));
  out.put(static_cast<std::uint16_t>(epoch.joins ? kJoins : epoch.leaves ? kLeaves : kGone));
  out.put(std::uint16_t{0});
  out.put(static_cast<std::uint64_t>(epoch.after));
  out.put(static_cast<std::uint32_t>(live.size()));
  out.put(static_cast<std::uint32_t>(committed.size()));
  out.put(static_cast<std::uint32_t>(membership.changes_.size()));
  for (const Membership::Change& change : membership.changes_) {
    out.put(change.number);
    out.put(static_cast<std::uint64_t>(change.after));
  }
  for (std::size_t m = 0; m < live.size(); ++m) {
    out.put(static_cast<std::uint32_t>(live[m]));
    out.put(membership.came_in_[m]);
    out.put(static_cast<std::uint64_t>(membership.since_[m]));
    out.put(static_cast<std::uint64_t>(membership.until_[m]));
  }
  for (const SyncId& id : committed) {
    out.put(static_cast<std::uint32_t>(id.fragment.value()));
    out.put(static_cast<std::uint64_t>(id.sent.value()));
  }
  out.put_text(epoch.why);
  return bytes;
}

Expected<EpochNews, std::string> EpochNews::read(std::span<const std::byte> bytes, int members) {
  const auto no = [](std::string why) { return Unexpected<std::string>(std::move(why)); };
  if (bytes.size() < kMembershipHeadBytes) {
    return no(fmt::format("an epoch of {} bytes is too short", bytes.size()));
  }
  FieldReader in(bytes);
  EpochNews news(Membership(members, 0, false));
  Membership& to = news.membership;
  to.number_ = in.get<std::uint32_t>();
  to.whole_ = in.get<std::uint32_t>();
  const auto who = in.get<std::uint32_t>();
  const auto what = in.get<std::uint16_t>();
  news.epoch.joins = what == kJoins;
  news.epoch.leaves = what == kLeaves;
  static_cast<void>(in.get<std::uint16_t>());
  news.epoch.after = signed_of(in.get<std::uint64_t>());
  const auto count = std::size_t{in.get<std::uint32_t>()};
  const auto ids = std::size_t{in.get<std::uint32_t>()};
  const auto changes = std::size_t{in.get<std::uint32_t>()};
  if (count != to.live_.size() || who >= count) {
    return no(
        fmt::format("an epoch of {} members about member {}; there are {}", count, who, members));
  }
  const std::size_t fixed = kMembershipHeadBytes + kChangeBytes * changes + kMemberBytes * count;
  if (ids > bytes.size() / kIdBytes || changes > kMostChanges ||
      bytes.size() < fixed + kIdBytes * ids) {
    return no(fmt::format("an epoch of {} bytes names {} rounds and {} changes", bytes.size(), ids,
                          changes));
  }
  for (std::size_t i = 0; i < changes; ++i) {
    const auto number = in.get<std::uint32_t>();
    to.changes_.push_back({number, signed_of(in.get<std::uint64_t>())});
    if (number > to.number_ || number <= (i > 0 ? to.changes_[i - 1].number : to.whole_)) {
      return no("an epoch names another one out of order");
    }
  }
  for (std::size_t m = 0; m < count; ++m) {
    to.live_[m] = in.get<std::uint32_t>() != 0;
    to.came_in_[m] = in.get<std::uint32_t>();
    to.since_[m] = signed_of(in.get<std::uint64_t>());
    to.until_[m] = signed_of(in.get<std::uint64_t>());
    if (to.came_in_[m] > to.number_) return no("an epoch names a later one");
  }
  if (to.whole_ > to.number_) return no("an epoch names a later one");
  for (std::size_t i = 0; i < ids; ++i) {
    const auto fragment = in.get<std::uint32_t>();
    const std::int64_t sent = signed_of(in.get<std::uint64_t>());
    if (fragment > 0x7fffffffu || sent < 0) {
      return no("an epoch names a round that cannot be");
    }
    news.committed.push_back({FragmentId(static_cast<int>(fragment)), StepIndex(sent)});
  }
  news.epoch.why = in.get_text(bytes.size() - fixed - kIdBytes * ids);
  news.epoch.number = to.number_;
  news.epoch.live = to.live_;
  news.epoch.who = WorkerId(static_cast<int>(who));
  return news;
}

}  // namespace isthmus
