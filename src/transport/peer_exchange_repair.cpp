// SPDX-License-Identifier: Apache-2.0
// What a round sends, sends again, still misses, and keeps for others.
#include <algorithm>

#include "transport/peer_exchange_round.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

void Round::send(Rank to, std::size_t k, FrameKind kind, const FrameBytes& frame, Outbox& out) {
  const std::size_t encoded =
      payload_of(frame).size() - (kind == FrameKind::kResult ? bitmap_bytes(place_.members) : 0);
  payload_bytes_ += encoded;
  wire_bytes_ += frame->size();
  stamp(to, k, kind) = (*place_.echoes)[index(to)];
  out.push_back({to, frame, encoded});
}

std::uint32_t& Round::stamp(Rank to, std::size_t k, FrameKind kind) {
  const std::size_t row = kind == FrameKind::kResult ? parts_.size() + k : k;
  return stamps_[row * static_cast<std::size_t>(place_.members) + index(to)];
}

void Round::send_again(Rank to, std::span<const RequestEntry> entries, std::uint32_t echo,
                       Outbox& out) {
  for (const RequestEntry& entry : entries) {
    const std::size_t end =
        std::min<std::size_t>(std::size_t{entry.first} + entry.count, parts_.size());
    for (std::size_t k = entry.first; k < end; ++k) {
      const bool result = entry.kind == FrameKind::kResult;
      const FrameBytes& frame = result ? parts_[k].result : parts_[k].own;
      const bool wanted = result || plan_.all_to_all() || plan_.parts[k].owner == to;
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
    const bool wanted = plan_.all_to_all() || plan_.parts[k].owner == to;
    if (parts_[k].own && wanted) send(to, k, FrameKind::kContribution, parts_[k].own, out);
    if (parts_[k].result) send(to, k, FrameKind::kResult, parts_[k].result, out);
  }
}

std::vector<RequestEntry> Round::missing_from(Rank peer) const {
  std::vector<RequestEntry> entries;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const bool contribution =
        reduces(plan_.parts[k]) && !parts_[k].done && parts_[k].inputs[index(peer)] == nullptr;
    const bool result = plan_.parts[k].owner == peer && !parts_[k].done;
    if (!contribution && !result) {
      continue;
    }
    const FrameKind kind = contribution ? FrameKind::kContribution : FrameKind::kResult;
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
    if (!reduces(plan_.parts[k])) continue;
    if (parts_[k].done || parts_[k].inputs[index(peer)] != nullptr) return false;
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
