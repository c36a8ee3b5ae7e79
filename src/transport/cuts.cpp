// SPDX-License-Identifier: Apache-2.0
#include "transport/cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace isthmus {
namespace {

std::optional<Rank> other_of(const std::pair<Rank, Rank>& pair, Rank member) {
  if (pair.first == member) return pair.second;
  if (pair.second == member) return pair.first;
  return std::nullopt;
}

}  // namespace

void Cuts::note(Rank from, Rank to, const std::string& why, TimePoint now) {
  cuts_.try_emplace({from, to}, Cut{now, why});
}

bool Cuts::reported(Rank member) const {
  return std::ranges::any_of(cuts_, [&](const auto& cut) { return cut.first.second == member; });
}

void Cuts::forget(Rank a, Rank b) {
  cuts_.erase({a, b});
  cuts_.erase({b, a});
}

void Cuts::gone(Rank member) {
  std::erase_if(cuts_, [&](const auto& cut) { return other_of(cut.first, member).has_value(); });
}

/// With how many others.
int Cuts::pairs_of(Rank member) const {
  std::set<Rank> others;
  for (const auto& [pair, cut] : cuts_) {
    if (const auto other = other_of(pair, member)) others.insert(*other);
  }
  return static_cast<int>(others.size());
}

bool Cuts::is_common(Rank member) const {
  const auto reports =
      std::ranges::count_if(cuts_, [&](const auto& cut) { return cut.first.second == member; });
  return reports > 1 && std::ranges::all_of(cuts_, [&](const auto& cut) {
           const auto other = other_of(cut.first, member);
           return !other || pairs_of(*other) == 1;
         });
}

TimePoint Cuts::due(const Pairs::value_type& cut) const {
  const auto& [pair, of] = cut;
  return is_common(pair.first) || is_common(pair.second) ? of.seen : of.seen + kGather;
}

TimePoint Cuts::due() const {
  TimePoint first = kNever;
  for (const auto& each : cuts_) first = std::min(first, due(each));
  return first;
}

std::optional<Cuts::Gone> Cuts::settle(TimePoint now) {
  if (now < due()) return std::nullopt;
  // Of those that are due, one of whom most have in common: the others may end with it.
  const Pairs::value_type* worst = nullptr;
  int most = 0;
  for (const auto& each : cuts_) {
    const int pairs = std::max(pairs_of(each.first.first), pairs_of(each.first.second));
    if (now < due(each) || pairs <= most) continue;
    worst = &each;
    most = pairs;
  }
  const auto [pair, cut] = *worst;
  const auto [from, to] = pair;
  const bool reporter = pairs_of(from) > pairs_of(to);
  forget(from, to);
  return Gone{reporter ? from : to,
              reporter
                  ? fmt::format("it has lost worker {}, and others too: {}", to.value(), cut.why)
                  : fmt::format("worker {} has lost it: {}", from.value(), cut.why)};
}

}  // namespace isthmus
