// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_exchange_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "quant/error_feedback.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

/// Owners' shares of so many values: nothing for who does not take part.
std::vector<std::uint32_t> shares_of(const RoundPlace& place, const Codec& codec,
                                     std::size_t values) {
  const bool by_size = !place.table.empty();
  const std::span<const std::uint32_t> all =
      by_size ? shares_of_size(place.table, encoded_bytes(codec, values)) : std::span(place.shares);
  std::vector<std::uint32_t> shares(all.begin(), all.end());
  if (std::ranges::find(place.live, true) == place.live.end()) {
    return by_size ? with_a_tile_each(shares, values) : shares;
  }
  if (shares.empty()) shares.assign(place.live.size(), 1);
  for (std::size_t m = 0; m < shares.size(); ++m) {
    if (!place.live[m]) shares[m] = 0;
  }
  if (std::ranges::find_if(shares, [](std::uint32_t s) { return s > 0; }) == shares.end()) {
    std::ranges::copy(place.live, shares.begin());  // all that had a share are gone
  }
  return by_size ? with_a_tile_each(shares, values) : shares;
}

}  // namespace

Round::Round(Contribution contribution, const RoundPlace& place)
    : id_(contribution.id),
      codec_(std::move(contribution.codec)),
      owner_residual_(std::move(contribution.owner_residual)),
      place_(place) {
  const ReductionKind kind = resolve_reduction(contribution.kind, *codec_, place_.members);
  const std::vector<std::uint32_t> shares = shares_of(place_, *codec_, contribution.encoded.values);
  plan_ = make_reduction_plan(*codec_, contribution.encoded.values, place_.members, kind, shares,
                              place_.chunk_bytes);
  arrange_groups(shares);
  place_.shares = {};
  place_.table = {};
  place_.groups = {};
  const auto members = static_cast<std::size_t>(place_.members);
  weights_.resize(members);
  for (std::size_t m = 0; m < members; ++m) {
    if (!takes_part(m)) weights_[m] = 0;
  }
  weights_[index(place_.self)] = contribution.weight;
  contributes_.assign(members, true);
  contributed_values_ = contribution.encoded.values;
  if (place_.keeps_encoded) encoded_ = room_for_encoded();
  if (kind == ReductionKind::kCollect) {
    collected_.resize(members);
  } else {
    values_.reserve(contributed_values_);
  }
  stamps_.resize(3 * plan_.parts.size() * members);
  parts_.resize(plan_.parts.size());
  open_parts_ = parts_.size();
  if (parts_.empty()) begin_digest();
  const FrameBytes nothing = make_frame(header(FrameKind::kContribution));  // of who is not there
  const auto contributed =
      std::make_shared<const std::vector<std::byte>>(std::move(contribution.encoded.bytes));
  // Put together once and lent to all, where each would have a copy made of the pieces.
  const bool goes_to_several = plan_.all_to_all() && members > 2;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const Part& part = plan_.parts[k];
    FrameHeader head = header_of_part(FrameKind::kContribution, k);
    head.weight = contribution.weight;
    const std::span<const std::byte> bytes = *contributed;
    const bool gives = contribution.weight > 0;  // else it need not have bytes
    const std::span<const std::byte> payload =
        gives ? bytes.subspan(part.offset, part.bytes) : bytes.first(0);
    parts_[k].own =
        goes_to_several ? make_frame(head, payload) : make_frame_around(head, payload, contributed);
    if (gathers(k)) {
      parts_[k].inputs.resize(members);
      for (std::size_t m = 0; m < members; ++m) {
        if (!feeds(m)) parts_[k].inputs[m] = nothing;
      }
      parts_[k].inputs[index(place_.self)] = parts_[k].own;
    }
    if (part.owner == place_.self) parts_[k].partials.resize(plan_.groups.size());
  }
}

FrameHeader Round::header(FrameKind kind) const {
  return {.kind = kind,
          .epoch = place_.epoch,
          .id = id_,
          .parts = static_cast<std::uint32_t>(plan_.parts.size()),
          .layout = plan_.layout,
          .closed_before = place_.closed_before};
}

FrameHeader Round::header_of_part(FrameKind kind, std::size_t k) const {
  FrameHeader head = header(kind);
  head.part = static_cast<std::uint32_t>(k);
  head.offset = plan_.parts[k].offset;
  return head;
}

bool Round::gathers(std::size_t k) const {
  return plan_.all_to_all() || gatherer(k) == place_.self;
}

// Parts come about in their order, so the vector's zeros are overwritten while they are in the
// cache.
std::span<float> Round::values_of(const Part& part) {
  values_.resize(std::max(values_.size(), part.first_value + part.values));
  return std::span(values_).subspan(part.first_value, part.values);
}

// Each destination's parts go out in order, destinations in turn and starting after the sender, so
// that no link idles and not everyone talks to member 0 first. What has the way to another group
// still before it goes before what stays in this one.
Expected<void, ExchangeError> Round::launch(Outbox& out) {
  for (int hop = 1; hop < place_.members; ++hop) {
    const Rank to((place_.self.value() + hop) % place_.members);
    for (const bool stays : {false, true}) {
      for (std::size_t k = 0; takes_part(index(to)) && k < parts_.size(); ++k) {
        const bool wanted = plan_.all_to_all() || gatherer(k) == to;
        if (wanted && stays == (plan_.two_levels() && feeds(index(plan_.parts[k].owner)))) {
          send(to, k, FrameKind::kContribution, parts_[k].own, out);
        }
      }
    }
  }
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    if (gathers(k)) {
      if (auto ok = reduce_if_ready(k, out); !ok) {
        return ok;
      }
    }
  }
  return {};
}

Expected<void, ExchangeError> Round::receive(Rank from, const Frame& frame, FrameBytes bytes,
                                             bool& fresh, Outbox& out) {
  fresh = false;
  const FrameHeader& head = frame.header;
  if (head.layout != plan_.layout || head.parts != plan_.parts.size()) {
    return fault(ExchangeError::Kind::kDiverged, from,
                 "sent it in another layout: codec, number of values, members, exchange or "
                 "net.chunk differ");
  }
  if (head.part >= parts_.size() || head.offset != plan_.parts[head.part].offset) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a part that the round does not have");
  }
  switch (head.kind) {
    case FrameKind::kContribution:
      return take_contribution(from, frame, std::move(bytes), fresh, out);
    case FrameKind::kPartial:
      return take_partial(from, frame, std::move(bytes), fresh, out);
    default:
      return take_result(from, frame, std::move(bytes), fresh, out);
  }
}

Expected<void, ExchangeError> Round::take_contribution(Rank from, const Frame& frame,
                                                       FrameBytes bytes, bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const double weight = frame.header.weight;
  const std::size_t expected = weight > 0 ? plan_.parts[k].bytes : 0;
  if (!gathers(k) || !feeds(index(from)) || frame.payload.size() != expected) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a part of the wrong size or owner");
  }
  if (weights_[index(from)].value_or(weight) != weight) {
    return fault(ExchangeError::Kind::kCorrupt, from, "changed its weight within the round");
  }
  weights_[index(from)] = weight;
  PartState& state = parts_[k];
  if (state.done || state.inputs.empty() || state.inputs[index(from)] != nullptr) {
    return {};
  }
  fresh = true;
  state.inputs[index(from)] = std::move(bytes);
  return reduce_if_ready(k, out);
}

Expected<void, ExchangeError> Round::take_result(Rank from, const Frame& frame, FrameBytes bytes,
                                                 bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const Part& part = plan_.parts[k];
  const std::size_t prefix = bitmap_bytes(place_.members);
  if (plan_.all_to_all() || source(k) != from || frame.payload.size() != prefix + part.bytes) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a result of the wrong size or owner");
  }
  if (parts_[k].done) {
    return {};
  }
  const std::vector<bool> bits = read_bitmap(frame.payload.first(prefix), place_.members);
  if (contributors_known_ && bits != contributes_) {
    return fault(ExchangeError::Kind::kDiverged, from, "counted other contributors");
  }
  contributes_ = bits;
  contributors_known_ = true;
  if (auto ok = decode(*codec_, frame.payload.subspan(prefix), values_of(part)); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, from, ok.error().what);
  }
  fresh = true;
  if (!encoded_.empty()) encoded_.keep(k, {std::move(bytes)});
  parts_[k].own.reset();  // the owner answered, so it has every contribution to this part
  parts_[k].partial.reset();
  if (plan_.two_levels() && gathers(k)) pass_on(k, frame.payload, out);
  finish_part(k);
  return {};
}

Expected<void, ExchangeError> Round::reduce_if_ready(std::size_t k, Outbox& out) {
  PartState& state = parts_[k];
  if (state.done || std::ranges::find(state.inputs, nullptr) != state.inputs.end()) {
    return {};
  }
  if (plan_.two_levels()) return close_group(k, out);
  std::vector<bool> contributes;
  for (std::size_t m = 0; m < state.inputs.size(); ++m) {
    contributes.push_back(weights_[m].value() > 0);
  }
  if (contributors_known_ && contributes != contributes_) {
    return fault(ExchangeError::Kind::kDiverged, place_.self, "counts other contributors");
  }
  contributes_ = contributes;
  contributors_known_ = true;
  if (plan_.kind == ReductionKind::kCollect) {
    collect_part(k);
  } else if (auto ok = reduce_part(k); !ok) {
    return ok;
  }
  if (!encoded_.empty() && plan_.kind == ReductionKind::kGather) {
    encoded_.keep(k, std::move(state.inputs));
  }
  state.inputs.clear();
  if (plan_.kind == ReductionKind::kReduce) {
    if (auto ok = answer(k, out); !ok) {
      return ok;
    }
  }
  finish_part(k);
  return {};
}

Expected<void, ExchangeError> Round::reduce_part(std::size_t k) {
  std::vector<WeightedBytes> members;
  for (std::size_t m = 0; m < parts_[k].inputs.size(); ++m) {
    members.push_back({payload_of(parts_[k].inputs[m]), weights_[m].value()});
  }
  if (auto ok = reduce_tiles(*codec_, members, values_of(plan_.parts[k])); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, Rank(static_cast<int>(ok.error().member)),
                 ok.error().what);
  }
  return {};
}

void Round::collect_part(std::size_t k) {
  const std::size_t whole = plan_.parts.back().offset + plan_.parts.back().bytes;
  for (std::size_t m = 0; m < collected_.size(); ++m) {
    if (contributes_[m]) {
      collected_[m].resize(whole);
      std::ranges::copy(payload_of(parts_[k].inputs[m]),
                        std::span(collected_[m]).subspan(plan_.parts[k].offset).begin());
    }
  }
}

/// Where the residual of a part this member owns lies; empty without one, and where nobody
/// contributes: such a mean is used by nobody, so nothing of the residual may go out with it.
std::span<float> Round::owner_residual(const Part& part) {
  if (owner_residual_ == nullptr || std::ranges::find(contributes_, true) == contributes_.end()) {
    return {};
  }
  const auto own = [&](const Part& each) { return each.owner == place_.self; };
  const auto first = std::ranges::find_if(plan_.parts, own);
  std::size_t owned = 0;
  for (const Part& each : plan_.parts) owned += own(each) ? each.values : 0;
  if (owner_residual_->values.size() != owned || owner_residual_->first != first->first_value) {
    owner_residual_->values.assign(owned, 0.0f);
    owner_residual_->first = first->first_value;
  }
  return std::span(owner_residual_->values)
      .subspan(part.first_value - first->first_value, part.values);
}

/// The part's values as `worker`; with a residual of as many values, what goes out includes it.
void Round::encode_part(const Part& part, std::uint32_t worker, std::span<float> residual,
                        std::span<std::byte> out) {
  const std::span<float> values = values_of(part);
  EncodeKey key = encode_key(id_, worker, place_.run_key);
  key.tile = part.first_value / kTileValues;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, values.size() - begin);
    const std::size_t size = codec_->encoded_bytes(n);
    const std::span<float> tile = values.subspan(begin, n);
    if (residual.empty()) {
      codec_->encode(tile, out.subspan(at, size), key);
    } else {
      // A value that is not finite goes out as it is and leaves the residual alone.
      static_cast<void>(encode_with_feedback(*codec_, residual.subspan(begin, n), 1, begin, tile,
                                             out.subspan(at, size), key));
    }
    at += size;
    ++key.tile;
  }
}

// Everyone uses the decoded bytes, the owner too: the fp32 mean it has just computed is
// overwritten, but where decoding would bring the same bits.
Expected<void, ExchangeError> Round::answer(std::size_t k, Outbox& out) {
  const Part& part = plan_.parts[k];
  const std::size_t prefix = bitmap_bytes(place_.members);
  FrameBuilder builder(header_of_part(FrameKind::kResult, k), prefix + part.bytes);
  write_bitmap(contributes_, builder.payload().first(prefix));
  const std::span<std::byte> bytes = builder.payload().subspan(prefix);
  const std::span<float> residual = owner_residual(part);
  encode_part(part, kMeanWorker, residual, bytes);
  if (!codec_->lossless() || !residual.empty()) {
    if (auto ok = decode(*codec_, bytes, values_of(part)); !ok) {
      return fault(ExchangeError::Kind::kCorrupt, place_.self, ok.error().what);
    }
  }
  parts_[k].own.reset();
  parts_[k].result = std::move(builder).finish();
  if (!encoded_.empty()) encoded_.keep(k, {parts_[k].result});
  for (const Rank to : receivers(k)) send(to, k, FrameKind::kResult, parts_[k].result, out);
  return {};
}

// The digest follows the parts in their order, while their values are still in the cache.
void Round::finish_part(std::size_t k) {
  parts_[k].done = true;
  --open_parts_;
  if (digested_ == 0 && k == 0) begin_digest();
  for (; digested_ < parts_.size() && parts_[digested_].done; ++digested_) {
    if (plan_.kind == ReductionKind::kCollect) continue;  // its order is that of members
    stream_.update(std::as_bytes(values_of(plan_.parts[digested_])));
  }
  if (complete()) {
    for (const std::vector<std::byte>& bytes : collected_) stream_.update(bytes);
  }
}

// Who contributes is known with the first part.
void Round::begin_digest() {
  std::vector<std::byte> bits(bitmap_bytes(place_.members));
  write_bitmap(contributes_, bits);
  stream_.update(bits);
}

Digest128 Round::digest() const {
  ISTHMUS_CHECK(complete(), open_parts_);
  return stream_.digest();
}

Reduced Round::take() {
  ISTHMUS_CHECK(complete(), open_parts_);
  Reduced reduced{.values = std::move(values_),
                  .contributors = {},
                  .contributions = {},
                  .payload_bytes = payload_bytes_,
                  .wire_bytes = wire_bytes_};
  for (std::size_t m = 0; m < contributes_.size(); ++m) {
    if (contributes_[m]) {
      reduced.contributors.push_back(Rank(static_cast<int>(m)));
      if (plan_.kind == ReductionKind::kCollect) {
        reduced.contributions.push_back({contributed_values_, std::move(collected_[m])});
      }
    }
  }
  return reduced;
}

Unexpected<ExchangeError> Round::fault(ExchangeError::Kind kind, Rank peer,
                                       const std::string& what) const {
  return Unexpected<ExchangeError>(
      ExchangeError{kind, peer,
                    fmt::format("fragment {} of step {}: worker {} {}", id_.fragment.value(),
                                id_.sent.value(), peer.value(), what)});
}

}  // namespace isthmus
