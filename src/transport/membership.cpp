// SPDX-License-Identifier: Apache-2.0
#include "transport/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "transport/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::size_t kHeadBytes = 32;
constexpr std::size_t kMemberBytes = 16;
constexpr std::size_t kIdBytes = 12;

std::int64_t signed_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

Membership::Membership(int members, std::uint32_t epoch, bool all_live)
    : number_(epoch),
      whole_(epoch),
      live_(static_cast<std::size_t>(members), all_live),
      since_(live_.size(), -1),
      came_in_(live_.size(), 0) {}

int Membership::count() const { return static_cast<int>(std::ranges::count(live_, true)); }

bool Membership::takes_part(Rank member, StepIndex sent) const {
  return live_[index(member)] && sent.value() > since_[index(member)];
}

std::vector<bool> Membership::members_of(StepIndex sent) const {
  std::vector<bool> members(live_.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    members[m] = takes_part(Rank(static_cast<int>(m)), sent);
  }
  return members;
}

std::uint32_t Membership::epoch_of(StepIndex sent) const {
  std::uint32_t epoch = whole_;
  for (std::size_t m = 0; m < live_.size(); ++m) {
    if (takes_part(Rank(static_cast<int>(m)), sent)) epoch = std::max(epoch, came_in_[m]);
  }
  return epoch;
}

Membership Membership::without(Rank member) const {
  ISTHMUS_CHECK(live(member), member.value());
  Membership next = *this;
  next.whole_ = ++next.number_;
  next.live_[index(member)] = false;
  return next;
}

Membership Membership::with(Rank member, std::int64_t after) const {
  ISTHMUS_CHECK(!live(member), member.value());
  Membership next = *this;
  ++next.number_;
  next.live_[index(member)] = true;
  next.since_[index(member)] = after;
  next.came_in_[index(member)] = next.number_;
  return next;
}

std::vector<std::byte> EpochNews::write() const {
  const std::vector<bool>& live = membership.live_;
  std::vector<std::byte> bytes(kHeadBytes + kMemberBytes * live.size() +
                               kIdBytes * committed.size() + epoch.why.size());
  FieldWriter out(bytes);
  out.put(membership.number_);
  out.put(membership.whole_);
  out.put(static_cast<std::uint32_t>(epoch.who.value()));
  out.put(static_cast<std::uint16_t>(epoch.joins));
  out.put(static_cast<std::uint16_t>(epoch.over));
  out.put(static_cast<std::uint64_t>(epoch.after));
  out.put(static_cast<std::uint32_t>(live.size()));
  out.put(static_cast<std::uint32_t>(committed.size()));
  for (std::size_t m = 0; m < live.size(); ++m) {
    out.put(static_cast<std::uint32_t>(live[m]));
    out.put(membership.came_in_[m]);
    out.put(static_cast<std::uint64_t>(membership.since_[m]));
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
  if (bytes.size() < kHeadBytes) {
    return no(fmt::format("an epoch of {} bytes is too short", bytes.size()));
  }
  FieldReader in(bytes);
  EpochNews news(Membership(members, 0, false));
  Membership& to = news.membership;
  to.number_ = in.get<std::uint32_t>();
  to.whole_ = in.get<std::uint32_t>();
  const auto who = in.get<std::uint32_t>();
  news.epoch.joins = in.get<std::uint16_t>() != 0;
  news.epoch.over = in.get<std::uint16_t>() != 0;
  news.epoch.after = signed_of(in.get<std::uint64_t>());
  const auto count = std::size_t{in.get<std::uint32_t>()};
  const auto ids = std::size_t{in.get<std::uint32_t>()};
  if (count != to.live_.size() || who >= count) {
    return no(
        fmt::format("an epoch of {} members about member {}; there are {}", count, who, members));
  }
  if (ids > bytes.size() / kIdBytes ||
      bytes.size() < kHeadBytes + kMemberBytes * count + kIdBytes * ids) {
    return no(fmt::format("an epoch of {} bytes names {} rounds", bytes.size(), ids));
  }
  for (std::size_t m = 0; m < count; ++m) {
    to.live_[m] = in.get<std::uint32_t>() != 0;
    to.came_in_[m] = in.get<std::uint32_t>();
    to.since_[m] = signed_of(in.get<std::uint64_t>());
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
  news.epoch.why = in.get_text(bytes.size() - kHeadBytes - kMemberBytes * count - kIdBytes * ids);
  news.epoch.number = to.number_;
  news.epoch.live = to.live_;
  news.epoch.who = Rank(static_cast<int>(who));
  return news;
}

}  // namespace isthmus
