// SPDX-License-Identifier: Apache-2.0
// What a round sends, sends again, still misses, and keeps for others.
#include <algorithm>

#include "transport/peer_exchange_round.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

void Round::send(Rank to, std::size_t k, FrameKind kind, const FrameBytes& frame, Outbox& out) {
  const std::size_t encoded = payload_of(frame).size() -
                              (kind == FrameKind::kContribution ? 0 : bitmap_bytes(place_.members));
  payload_bytes_ += encoded;
  wire_bytes_ += frame->size();
  stamp(to, k, kind) = (*place_.echoes)[index(to)];
  out.push_back({to, frame, encoded});
}

std::uint32_t& Round::stamp(Rank to, std::size_t k, FrameKind kind) {
  const std::size_t rows = kind == FrameKind::kContribution ? 0
                           : kind == FrameKind::kResult     ? 1
                                                            : 2;
  return stamps_[(rows * parts_.size() + k) * static_cast<std::size_t>(place_.members) + index(to)];
}

void Round::send_again(Rank to, std::span<const RequestEntry> entries, std::uint32_t echo,
                       Outbox& out) {
  for (const RequestEntry& entry : entries) {
    const std::size_t end =
        std::min<std::size_t>(std::size_t{entry.first} + entry.count, parts_.size());
    for (std::size_t k = entry.first; k < end; ++k) {
      const bool result = entry.kind == FrameKind::kResult;
      const bool partial = entry.kind == FrameKind::kPartial;
      const FrameBytes& frame = result    ? parts_[k].result
                                : partial ? parts_[k].partial
                                          : parts_[k].own;
      const bool wanted =
          result || plan_.all_to_all() || (partial ? plan_.parts[k].owner : gatherer(k)) == to;
      if (frame == nullptr || !wanted || stamp(to, k, entry.kind) >= echo) {
        continue;
      }
      stamp(to, k, entry.kind) = (*place_.echoes)[index(to)];
      wire_bytes_ += frame->size();
      out.push_back({to, frame, 0});
    }
  }
}

void Round::send_anew(Rank to, Outbox& out) {
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const PartState& part = parts_[k];
    const bool wanted = plan_.all_to_all() || gatherer(k) == to;
    if (part.own && wanted) send(to, k, FrameKind::kContribution, part.own, out);
    if (part.partial && plan_.parts[k].owner == to) {
      send(to, k, FrameKind::kPartial, part.partial, out);
    }
    if (!part.result) continue;
    const std::vector<Rank> ranks = receivers(k);
    if (std::ranges::find(ranks, to) != ranks.end()) {
      send(to, k, FrameKind::kResult, part.result, out);
    }
  }
}

void Round::drop_frames() {
  for (PartState& part : parts_) {
    part = PartState{.own = nullptr,
                     .result = nullptr,
                     .inputs = {},
                     .partial = nullptr,
                     .partials = {},
                     .done = part.done};
  }
}

std::vector<RequestEntry> Round::missing_from(Rank peer) const {
  std::vector<RequestEntry> entries;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const PartState& state = parts_[k];
    const bool contribution = !state.done && !state.inputs.empty() && !state.inputs[index(peer)];
    const bool result = !state.done && !plan_.all_to_all() && source(k) == peer;
    const bool partial = !state.done && misses_partial(k, peer);
    if (!contribution && !result && !partial) {
      continue;
    }
    const FrameKind kind = contribution ? FrameKind::kContribution
                           : partial    ? FrameKind::kPartial
                                        : FrameKind::kResult;
    const auto part = static_cast<std::uint32_t>(k);
    if (!entries.empty() && entries.back().kind == kind &&
        entries.back().first + entries.back().count == part) {
      ++entries.back().count;
    } else if (entries.size() < kMaxRequestEntries) {
      entries.push_back({kind, part, 1});
    } else {
      break;
    }
  }
  return entries;
}

bool Round::owes(Rank peer) const { return !missing_from(peer).empty(); }

bool Round::nothing_from(Rank peer) const {
  bool waits = false;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const PartState& state = parts_[k];
    const bool sums = gathers(k) && feeds(index(peer));
    if (sums && (state.inputs.empty() || state.inputs[index(peer)] != nullptr)) return false;
    // Of a group of one, its partial is its contribution.
    const bool alone = !sums && plan_.two_levels() && plan_.parts[k].owner == place_.self &&
                       plan_.groups[group_of_[index(peer)]].size() == 1;
    if (alone && (state.done || !misses_partial(k, peer))) return false;
    waits = waits || sums || alone;
  }
  return waits;
}

bool Round::no_partial_from(Rank peer) const {
  bool waits = false;
  for (std::size_t k = 0; k < parts_.size() && plan_.two_levels(); ++k) {
    const std::size_t group = group_of_[index(peer)];
    if (plan_.parts[k].owner != place_.self || feeds(index(peer)) ||
        plan_.collector(k, group) != peer) {
      continue;
    }
    if (parts_[k].done || !misses_partial(k, peer)) return false;
    waits = true;
  }
  return waits;
}

EncodedResult Round::room_for_encoded() const {
  std::size_t shares = 1;
  if (plan_.kind == ReductionKind::kGather) {
    shares = 0;
    for (std::size_t m = 0; m < weights_.size(); ++m) shares += takes_part(m) ? 1 : 0;
  }
  const std::size_t bytes = plan_.parts.empty() ? 0 : encoded_bytes(*codec_, contributed_values_);
  const bool smaller = shares * bytes < contributed_values_ * sizeof(float);
  if (!smaller || plan_.kind == ReductionKind::kCollect) return {};
  const bool reduces = plan_.kind == ReductionKind::kReduce;
  return {plan_.parts.size(), reduces ? bitmap_bytes(place_.members) : 0};
}

std::vector<EncodedShare> EncodedResult::shares() const {
  std::vector<EncodedShare> shares;
  for (std::size_t s = 0; !frames_.empty() && s < frames_.front().size(); ++s) {
    const double weight = prefix_ > 0 ? 1 : parse_frame(*frames_.front()[s])->header.weight;
    if (weight == 0) continue;
    EncodedShare share{.weight = weight, .bytes = {}};
    for (const std::vector<FrameBytes>& part : frames_) {
      const std::span<const std::byte> bytes = payload_of(part[s]).subspan(prefix_);
      share.bytes.insert(share.bytes.end(), bytes.begin(), bytes.end());
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace isthmus
