// SPDX-License-Identifier: Apache-2.0
// A round's way through two levels: a group's members send to one of them, its mean goes to the
// part's owner, the result comes back the same way (reduction.h). With one level the owner is the
// only one that gathers.
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_round.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

void Round::arrange_groups(std::span<const std::uint32_t> shares) {
  if (place_.groups.empty() || !takes_part(index(place_.self))) return;
  ISTHMUS_CHECK(place_.groups.size() == static_cast<std::size_t>(place_.members),
                place_.groups.size(), place_.members);
  add_groups(plan_, place_.groups, place_.live, shares);
  if (!plan_.two_levels()) return;
  group_of_.assign(static_cast<std::size_t>(place_.members), plan_.groups.size());
  group_weights_.resize(plan_.groups.size());
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    for (const Rank member : plan_.groups[g]) group_of_[index(member)] = g;
  }
}

Rank Round::gatherer(std::size_t k) const {
  return plan_.two_levels() ? plan_.collector(k, group_of_[index(place_.self)])
                            : plan_.parts[k].owner;
}

bool Round::feeds(std::size_t member) const {
  return takes_part(member) &&
         (!plan_.two_levels() || group_of_[member] == group_of_[index(place_.self)]);
}

Rank Round::source(std::size_t k) const {
  return gatherer(k) == place_.self ? plan_.parts[k].owner : gatherer(k);
}

std::vector<Rank> Round::receivers(std::size_t k) const {
  std::vector<Rank> ranks;
  const bool owner = plan_.parts[k].owner == place_.self;
  for (int hop = 1; hop < place_.members; ++hop) {
    const Rank to((place_.self.value() + hop) % place_.members);
    const bool collects = owner && plan_.two_levels() && takes_part(index(to)) &&
                          plan_.collector(k, group_of_[index(to)]) == to;
    if (feeds(index(to)) || collects) ranks.push_back(to);
  }
  return ranks;
}

bool Round::misses_partial(std::size_t k, Rank peer) const {
  const std::size_t group = group_of_.empty() ? 0 : group_of_[index(peer)];
  return group < parts_[k].partials.size() && plan_.collector(k, group) == peer &&
         !parts_[k].partials[group];
}

/// All contributions of the own group are here.
Expected<void, ExchangeError> Round::close_group(std::size_t k, Outbox& out) {
  PartState& state = parts_[k];
  if (state.inputs.empty()) return {};
  const Part& part = plan_.parts[k];
  const std::size_t own_group = group_of_[index(place_.self)];
  const std::vector<Rank>& group = plan_.groups[own_group];
  std::vector<WeightedBytes> inputs;
  std::vector<bool> contributes(static_cast<std::size_t>(place_.members));
  FrameHeader head = header_of_part(FrameKind::kPartial, k);
  for (const Rank member : group) {
    const double weight = weights_[index(member)].value();
    inputs.push_back({payload_of(state.inputs[index(member)]), weight});
    contributes[index(member)] = weight > 0;
    head.weight += weight;
  }
  const std::size_t prefix = bitmap_bytes(place_.members);
  FrameBuilder builder(head, prefix + (head.weight > 0 ? part.bytes : 0));
  write_bitmap(contributes, builder.payload().first(prefix));
  const std::span<std::byte> bytes = builder.payload().subspan(prefix);
  if (group.size() == 1) {
    std::ranges::copy(inputs.front().bytes, bytes.begin());
  } else if (head.weight > 0) {
    if (auto ok = reduce_tiles(*codec_, inputs, values_of(part)); !ok) {
      return fault(ExchangeError::Kind::kCorrupt, group[ok.error().member], ok.error().what);
    }
    // Random roundings of one group are not those of another, nor those of the mean.
    const auto first = static_cast<std::uint32_t>(group.front().value());
    encode_part(part, kMeanWorker - 1 - first, {}, bytes);
  }
  state.inputs.clear();
  state.partial = std::move(builder).finish();
  if (part.owner != place_.self) {
    send(part.owner, k, FrameKind::kPartial, state.partial, out);
    return {};
  }
  group_weights_[own_group] = head.weight;
  state.partials[own_group] = std::exchange(state.partial, nullptr);
  return mean_of_groups(k, out);
}

Expected<void, ExchangeError> Round::take_partial(Rank from, const Frame& frame, FrameBytes bytes,
                                                  bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const Part& part = plan_.parts[k];
  const double weight = frame.header.weight;
  const std::size_t prefix = bitmap_bytes(place_.members);
  const std::size_t expected = prefix + (weight > 0 ? part.bytes : 0);
  const bool collects = plan_.two_levels() && part.owner == place_.self &&
                        takes_part(index(from)) && !feeds(index(from)) &&
                        plan_.collector(k, group_of_[index(from)]) == from;
  if (!collects || frame.payload.size() != expected) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a partial of the wrong size or owner");
  }
  PartState& state = parts_[k];
  const std::size_t group = group_of_[index(from)];
  if (state.done || state.partials[group] != nullptr) {
    return {};
  }
  const std::vector<bool> bits = read_bitmap(frame.payload.first(prefix), place_.members);
  bool of_group = (std::ranges::find(bits, true) != bits.end()) == (weight > 0);
  for (std::size_t m = 0; m < bits.size(); ++m) {
    of_group = of_group && (!bits[m] || group_of_[m] == group);
  }
  if (!of_group) {
    return fault(ExchangeError::Kind::kCorrupt, from, "counted contributors beyond its group");
  }
  if (group_weights_[group].value_or(weight) != weight) {
    return fault(ExchangeError::Kind::kCorrupt, from,
                 "changed the weight of its group within the round");
  }
  group_weights_[group] = weight;
  fresh = true;
  state.partials[group] = std::move(bytes);
  return mean_of_groups(k, out);
}

Expected<void, ExchangeError> Round::mean_of_groups(std::size_t k, Outbox& out) {
  PartState& state = parts_[k];
  if (state.done || std::ranges::find(state.partials, nullptr) != state.partials.end()) {
    return {};
  }
  const std::size_t prefix = bitmap_bytes(place_.members);
  std::vector<WeightedBytes> means;
  std::vector<bool> contributes(static_cast<std::size_t>(place_.members));
  for (std::size_t g = 0; g < state.partials.size(); ++g) {
    const std::span<const std::byte> payload = payload_of(state.partials[g]);
    const std::vector<bool> bits = read_bitmap(payload.first(prefix), place_.members);
    for (const Rank member : plan_.groups[g]) contributes[index(member)] = bits[index(member)];
    means.push_back({payload.subspan(prefix), group_weights_[g].value()});
  }
  if (contributors_known_ && contributes != contributes_) {
    return fault(ExchangeError::Kind::kDiverged, place_.self, "counts other contributors");
  }
  contributes_ = contributes;
  contributors_known_ = true;
  if (auto ok = reduce_tiles(*codec_, means, values_of(plan_.parts[k])); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, plan_.collector(k, ok.error().member),
                 ok.error().what);
  }
  state.partials.clear();
  if (auto ok = answer(k, out); !ok) {
    return ok;
  }
  finish_part(k);
  return {};
}

/// The owner's answer to the own group, as frames of this member: what a frame says besides the
/// result is of who sends it.
void Round::pass_on(std::size_t k, std::span<const std::byte> result, Outbox& out) {
  parts_[k].inputs.clear();
  parts_[k].result = make_frame(header_of_part(FrameKind::kResult, k), result);
  for (const Rank to : receivers(k)) send(to, k, FrameKind::kResult, parts_[k].result, out);
}

}  // namespace isthmus
